-- name: message_insert!
INSERT INTO messages
    (tenant_id, app_id, user_id, conversation_id, seq, id, turn_id, role, visibility, content, meta, stop_reason,
    model, provider, usage, trace_id, idempotency_key, created_at, metadata)
VALUES
    (:tenant_id, :app_id, :user_id, :conversation_id, :seq, :id, :turn_id, :role, :visibility, :content, :meta,
    :stop_reason, :model, :provider, :usage, :trace_id, :idempotency_key, :created_at, :metadata);

-- name: message_get^
SELECT {message_columns}
FROM messages
WHERE {scope} AND id = :id;

-- name: message_by_idempotency_key^
SELECT {message_columns}
FROM messages
WHERE {scope}
    AND conversation_id = :conversation_id AND idempotency_key = :idempotency_key;

-- name: messages_before
-- Newest first: the end of the log, or the messages before a seq.
SELECT {message_columns}
FROM messages
WHERE {scope}
    AND conversation_id = :conversation_id AND seq > :after AND seq < :before
    AND {shown_messages}
ORDER BY seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: history_before
-- The history sent to a model, newest first.
SELECT role, content, meta, turn_id
FROM messages
WHERE {scope}
    AND conversation_id = :conversation_id AND seq < :before AND visibility <> 'hidden'
ORDER BY seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: messages_after
SELECT {message_columns}
FROM messages
WHERE {scope}
    AND conversation_id = :conversation_id AND seq > :after AND seq < :before
    AND {shown_messages}
ORDER BY seq
LIMIT CAST(:limit AS BIGINT);

-- name: event_insert!
INSERT INTO events (tenant_id, app_id, user_id, type, subject_id, data, created_at)
VALUES (:tenant_id, :app_id, :user_id, :type, :subject_id, :data, :now);
