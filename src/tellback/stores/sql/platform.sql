-- Work across users, for schedulers and the event feed. Users' handles run none of these statements.

-- name: platform_events_read
SELECT position, type, tenant_id, app_id, user_id, subject_id, data, created_at
FROM events
WHERE position > :after AND position <= :until
    AND {owner_filter}
ORDER BY position
LIMIT CAST(:limit AS BIGINT);

-- name: platform_events_latest^
SELECT COALESCE(MAX(position), 0) AS position FROM events;

-- name: platform_stale_conversations
SELECT tenant_id, app_id, user_id, id
FROM conversations
WHERE status = 'open' AND updated_at < :idle_since AND id > :after
    AND (running_until IS NULL OR running_until < :claims_before)
    AND {owner_filter}
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: platform_due_conversations
SELECT tenant_id, app_id, user_id, id
FROM conversations
WHERE status = 'open' AND close_after IS NOT NULL AND updated_at + close_after < :now AND id > :after
    AND (running_until IS NULL OR running_until < :claims_before)
    AND {owner_filter}
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: platform_conversations
SELECT tenant_id, app_id, user_id, id
FROM conversations
WHERE id > :after
    AND {owner_filter}
    AND (CAST(:namespace AS TEXT) IS NULL OR namespace = :namespace)
    AND (CAST(:unsummarized AS BIGINT) IS NULL OR turns - summarized_turns >= :unsummarized)
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: platform_spaces
SELECT tenant_id, app_id, user_id, id
FROM spaces
WHERE status = 'ACTIVE' AND id > :after AND updated_at >= :since
ORDER BY id
LIMIT CAST(:limit AS BIGINT);
