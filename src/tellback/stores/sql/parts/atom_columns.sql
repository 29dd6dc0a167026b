seq, id, space_id AS memory_space_id, tenant_id, app_id, user_id, text, category, kind, importance, confidence, status,
valid_from, valid_to, created_at, updated_at, superseded_at, supersedes, superseded_by, source_conversation_id,
source_message_ids, entity_ids, other_sources
