id, tenant_id, app_id, created_by, scopes AS conversation_scope, space_ids AS memory_space_ids,
space_names AS memory_space_names, policy AS extraction_policy, enabled, since, created_at, updated_at
