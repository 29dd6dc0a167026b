-- All that is kept of a user, a page at a time, in the order of keys that never change: what was there stays in its place.

-- name: export_conversations
SELECT {conversation_columns}
FROM conversations
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: export_messages
SELECT {message_columns}
FROM messages
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND conversation_id = :conversation_id
    AND seq > :after
ORDER BY seq
LIMIT CAST(:limit AS BIGINT);

-- name: export_message_lengths
SELECT LENGTH(content) AS length
FROM messages
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND conversation_id = :conversation_id
    AND seq > :after
ORDER BY seq
LIMIT CAST(:limit AS BIGINT);

-- name: export_spaces
SELECT {space_columns}, status
FROM spaces
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: export_atoms
SELECT {atom_columns}, origin, slot, slot_value AS value
FROM atoms
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id AND seq > :after
ORDER BY seq
LIMIT CAST(:limit AS BIGINT);

-- name: export_validity_ends
SELECT seq, by_seq, known_at, valid_to
FROM atom_validity_ends
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
    AND seq >= :first AND seq <= :last
ORDER BY seq, by_seq;

-- name: export_embedders
SELECT seq, embedder
FROM atom_vectors
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
    AND seq >= :first AND seq <= :last
ORDER BY seq, embedder;

-- name: export_vectors
SELECT seq, embedder, vector
FROM atom_vectors
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
    AND seq >= :first AND seq <= :last
ORDER BY seq, embedder;

-- name: export_entities
SELECT {entity_columns}
FROM entities
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: export_jobs
SELECT {job_columns}
FROM jobs
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: export_usage
SELECT {usage_columns}
FROM usage
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);
