id, tenant_id, app_id, user_id, kind, status, conversation_id, binding_id, space_id AS memory_space_id, extraction_version, from_seq, to_seq,
attempts, due_at, created_at, updated_at, finished_at, error, raw_output, COALESCE(result, '{}') AS result, runs
