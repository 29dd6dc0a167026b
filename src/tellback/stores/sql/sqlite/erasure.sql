-- The writer's transaction is the lock.

-- name: erase_conversations_lock
SELECT id
FROM conversations
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: erase_spaces_lock
SELECT id
FROM spaces
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: platform_bindings_lock
SELECT {binding_columns}
FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id
ORDER BY id;

-- name: platform_queue_exists^
SELECT 0 AS found;

-- name: erase_messages
DELETE FROM messages
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id
    AND conversation_id IN (SELECT value FROM json_each(:ids))
RETURNING 1;

-- name: erase_conversations
DELETE FROM conversations
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id
    AND id IN (SELECT value FROM json_each(:ids))
RETURNING 1;
