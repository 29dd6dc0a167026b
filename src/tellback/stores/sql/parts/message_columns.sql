id, conversation_id, seq, turn_id, role, content, created_at, visibility, stop_reason, model, provider, usage,
trace_id, idempotency_key, meta, metadata
