id, space_id AS memory_space_id, tenant_id, app_id, user_id, type, canonical_name, description, attributes, aliases, status, merged_into,
first_seen_at, last_seen_at, atom_count, created_at, updated_at
