-- All of a user's rows, children before parents. Conversations and spaces are taken first (`erase_conversations_lock`),
-- so that nothing is added to them any more.

-- name: erase_atom_vectors
DELETE FROM atom_vectors
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
RETURNING 1;

-- name: erase_atom_entities
DELETE FROM atom_entities
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
RETURNING 1;

-- name: erase_atom_validity_ends
DELETE FROM atom_validity_ends
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
RETURNING 1;

-- name: erase_atoms
DELETE FROM atoms
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
RETURNING 1;

-- name: erase_entity_names
DELETE FROM entity_names
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
RETURNING 1;

-- name: erase_entities
DELETE FROM entities
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
RETURNING 1;

-- name: erase_space
DELETE FROM spaces
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id = :space_id
RETURNING 1;

-- name: erase_jobs_list
SELECT id
FROM jobs
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id;

-- name: erase_jobs!
DELETE FROM jobs
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id;

-- name: erase_usage_count^
SELECT COUNT(*) AS count
FROM usage
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id;

-- name: erase_usage!
DELETE FROM usage
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id;

-- name: erase_events
-- Events are found by their positions alone, so a stretch of them is read at a time.
DELETE FROM events
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND position > :after AND position <= :until
RETURNING 1;

-- name: erase_events_without_position
DELETE FROM events
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND position IS NULL
RETURNING 1;

-- name: erase_event_exists
SELECT 1
FROM events
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id
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
