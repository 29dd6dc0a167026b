-- Deletes all of a user's rows, children before parents. Conversations and spaces are locked first
-- (`erase_conversations_lock`), so that no rows can be added to them.

-- name: erase_atom_vectors
DELETE FROM atom_vectors
WHERE {scope} AND space_id = :space_id
RETURNING 1;

-- name: erase_atom_entities
DELETE FROM atom_entities
WHERE {scope} AND space_id = :space_id
RETURNING 1;

-- name: erase_atom_validity_ends
DELETE FROM atom_validity_ends
WHERE {scope} AND space_id = :space_id
RETURNING 1;

-- name: erase_atoms
DELETE FROM atoms
WHERE {scope} AND space_id = :space_id
RETURNING 1;

-- name: erase_entity_names
DELETE FROM entity_names
WHERE {scope} AND space_id = :space_id
RETURNING 1;

-- name: erase_entities
DELETE FROM entities
WHERE {scope} AND space_id = :space_id
RETURNING 1;

-- name: erase_spaces
DELETE FROM spaces
WHERE {scope} AND id = :space_id
RETURNING 1;

-- name: erase_jobs_list
SELECT id
FROM jobs
WHERE {scope};

-- name: erase_jobs!
DELETE FROM jobs
WHERE {scope};

-- name: erase_usage_count^
SELECT COUNT(*) AS count
FROM usage
WHERE {scope};

-- name: erase_usage!
DELETE FROM usage
WHERE {scope};

-- name: erase_events
-- Events are indexed by position only, so they are read in ranges.
DELETE FROM events
WHERE {scope} AND position > :after AND position <= :until
RETURNING 1;

-- name: erase_events_without_position
DELETE FROM events
WHERE {scope} AND position IS NULL
RETURNING 1;

-- name: erase_event_exists
SELECT 1
FROM events
WHERE {scope}
    AND ((position > :after AND position <= :until) OR position IS NULL)
LIMIT 1;

-- name: platform_binding_erase!
UPDATE bindings
SET created_by = :created_by, scopes = :conversation_scope, space_ids = :memory_space_ids, single_user_id = :single_user_id
WHERE tenant_id = :tenant_id AND app_id = :app_id AND id = :id;

-- name: platform_events_of_erasure
SELECT subject_id, position
FROM events
WHERE type = 'user.erased' AND position > :after
ORDER BY position;

-- name: erase_conversations_lock
SELECT id
FROM conversations
WHERE {scope} AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT)
{for_update};

-- name: erase_spaces_lock
SELECT id
FROM spaces
WHERE {scope} AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT)
{for_update};

-- name: platform_bindings_lock
SELECT {binding_columns}
FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id
ORDER BY id
{for_update};

-- name: erase_messages
DELETE FROM messages
WHERE {scope}
    AND conversation_id IN ({listed_ids})
RETURNING 1;

-- name: erase_conversations
DELETE FROM conversations
WHERE {scope}
    AND id IN ({listed_ids})
RETURNING 1;
