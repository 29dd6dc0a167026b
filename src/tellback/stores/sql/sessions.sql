-- Agents' sessions. Their messages are in their conversations.

-- name: session_insert
-- An id is unique in an app, across its users.
INSERT INTO sessions
    (tenant_id, app_id, user_id, id, agent_name, status, current_route, current_state, collected_data, message_count,
    last_message_at, completed_at, created_at, updated_at, version, since)
VALUES
    (:tenant_id, :app_id, :user_id, :id, :agent_name, :status, :current_route, :current_state, :collected_data,
    :message_count, :last_message_at, :completed_at, :created_at, :updated_at, :version, :since)
ON CONFLICT DO NOTHING
RETURNING 1;

-- name: session_get
SELECT {session_columns}
FROM sessions
WHERE {scope} AND id = :id;

-- name: platform_session_get
SELECT {session_columns}
FROM sessions
WHERE tenant_id = :tenant AND app_id = :app AND id = :id;

-- name: session_save
UPDATE sessions
SET
    agent_name = COALESCE(agent_name, :agent_name),
    current_route = :current_route,
    current_state = :current_state,
    collected_data = :collected_data,
    message_count = message_count + :message_count,
    last_message_at = COALESCE(CAST(:last_message_at AS BIGINT), last_message_at),
    updated_at = :updated_at,
    version = :version
WHERE {scope} AND id = :id AND version = :version - 1
RETURNING {session_columns};

-- name: session_add_message_count
UPDATE sessions
SET message_count = message_count + :message_count, last_message_at = :last_message_at, updated_at = :updated_at
WHERE {scope} AND id = :id
RETURNING {session_columns};

-- name: session_set_status
UPDATE sessions
SET status = :status, completed_at = CAST(:completed_at AS BIGINT), updated_at = :updated_at
WHERE {scope} AND id = :id
RETURNING {session_columns};

-- name: session_delete
DELETE FROM sessions
WHERE {scope} AND id = :id
RETURNING {session_columns};

-- name: sessions_of_user
SELECT {session_columns}
FROM sessions
WHERE {scope}
    AND (created_at < :created_at OR (created_at = :created_at AND id < :before))
ORDER BY created_at DESC, id DESC
LIMIT CAST(:limit AS BIGINT);

-- name: session_find_active
SELECT {session_columns}
FROM sessions
WHERE {scope} AND status = 'active'
    AND (CAST(:agent_name AS TEXT) IS NULL OR agent_name = :agent_name)
ORDER BY created_at DESC, id DESC
LIMIT 1;

-- name: conversations_of_session
SELECT id, status, namespace
FROM conversations
WHERE {scope} AND session_id = :session_id AND id > :since
ORDER BY id;

-- name: erase_sessions
DELETE FROM sessions
WHERE {scope}
RETURNING 1;

-- name: export_sessions
SELECT {session_columns}
FROM sessions
WHERE {scope} AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);
