-- Every statement here filters on the whole scope. Statements that work across users are named platform_….
-- Values are bound by name. CAST tells PostgreSQL the type of a value that may be NULL.

-- name: conversation_create!
INSERT INTO conversations
    (tenant_id, app_id, user_id, id, namespace, title, session_id, metadata, status, created_at, updated_at,
    close_after)
VALUES
    (:tenant_id, :app_id, :user_id, :id, :namespace, :title, :session_id, :metadata, 'open', :now, :now, :close_after);

-- name: conversation_get^
SELECT {conversation_columns}
FROM conversations
WHERE {scope} AND id = :id;

-- name: conversation_list
SELECT {conversation_columns}
FROM conversations
WHERE {scope}
    AND (CAST(:status AS TEXT) IS NULL OR status = :status)
    AND (CAST(:before AS TEXT) IS NULL OR id < :before)
ORDER BY id DESC
LIMIT CAST(:limit AS BIGINT);

-- name: conversation_list_in_namespace
SELECT {conversation_columns}
FROM conversations
WHERE {scope} AND namespace = :namespace
    AND (CAST(:status AS TEXT) IS NULL OR status = :status)
    AND (CAST(:before AS TEXT) IS NULL OR id < :before)
ORDER BY id DESC
LIMIT CAST(:limit AS BIGINT);

-- name: conversation_in_session^
-- The open conversation that a session continues.
SELECT {conversation_columns}
FROM conversations
WHERE {scope} AND namespace = :namespace
    AND COALESCE(session_id, '') = COALESCE(CAST(:session_id AS TEXT), '') AND status = 'open'
ORDER BY id DESC
LIMIT 1;

-- name: conversations_due
-- Open conversations that had no change for as long as their `close_after`.
SELECT id
FROM conversations
WHERE {scope}
    AND status = 'open' AND updated_at + close_after < :now;

-- name: conversation_close^
UPDATE conversations
SET status = 'closed', closed_at = :now, updated_at = :now
WHERE {scope} AND id = :id
    AND status = 'open' AND updated_at < COALESCE(CAST(:idle_since AS BIGINT), :now - close_after)
    AND (running_until IS NULL OR running_until < :claims_before)
RETURNING {conversation_columns};

-- name: conversation_write!
-- Runs after `conversation_lock`, which locks the row until the transaction ends.
UPDATE conversations
SET
    last_seq = :last_seq,
    turns = :turns,
    turn_id = :turn_id,
    running_turn = :running_turn,
    running_claim_id = :running_claim_id,
    running_until = :running_until,
    updated_at = :now
WHERE {scope} AND id = :id;

-- name: conversation_summarize^
UPDATE conversations
SET rolling_summary = :summary, rolling_summary_until_seq = :until_seq, summarized_turns = :turns
WHERE {scope} AND id = :id
    AND rolling_summary_until_seq = :expected_seq
RETURNING {conversation_columns};

-- name: turn_release!
UPDATE conversations
SET running_turn = NULL, running_claim_id = NULL, running_until = NULL
WHERE {scope} AND id = :id AND running_claim_id = :claim_id;

-- name: turn_extend!
UPDATE conversations
SET running_until = :until
WHERE {scope} AND id = :id AND running_claim_id = :claim_id;

-- name: conversation_lock^
SELECT {turn_state_columns}
FROM conversations
WHERE {scope} AND id = :id
{for_no_key_update};
