id, tenant_id, app_id, user_id, namespace, status, created_at, updated_at, title, session_id, metadata, closed_at,
last_seq, turns, rolling_summary, rolling_summary_until_seq, summarized_turns, close_after
