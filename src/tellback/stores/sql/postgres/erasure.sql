-- Whoever would add to them waits, and then finds them gone.

-- name: erase_conversations_lock
SELECT id
FROM conversations
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT)
FOR UPDATE;

-- name: erase_spaces_lock
SELECT id
FROM spaces
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT)
FOR UPDATE;

-- name: platform_bindings_lock
SELECT {binding_columns}
FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id
ORDER BY id
FOR UPDATE;

-- name: platform_queue_exists^
-- Ours, and not one that somebody else has where we look for extensions.
SELECT to_regclass(quote_ident(current_schema()) || '.procrastinate_jobs') IS NOT NULL AS found;

-- name: platform_queue_delete_deliveries!
-- What is at work ends by itself when it finds its job gone.
DELETE FROM procrastinate_jobs WHERE queueing_lock = ANY(CAST(:ids AS TEXT[])) AND status = 'todo';

-- name: erase_messages
DELETE FROM messages
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id
    AND conversation_id IN (SELECT jsonb_array_elements_text(CAST(CAST(:ids AS TEXT) AS JSONB)))
RETURNING 1;

-- name: erase_conversations
DELETE FROM conversations
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id
    AND id IN (SELECT jsonb_array_elements_text(CAST(CAST(:ids AS TEXT) AS JSONB)))
RETURNING 1;
