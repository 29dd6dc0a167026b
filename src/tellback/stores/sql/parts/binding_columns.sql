id, tenant_id, app_id, created_by, scopes, space_ids, space_names, policy, enabled, since, created_at, updated_at
