id, tenant_id, app_id, user_id, name, metadata, created_at, updated_at, atom_count
