-- All stored data of a user, in pages ordered by keys that never change, so existing rows never move between pages.

-- name: export_conversations
SELECT {conversation_columns}
FROM conversations
WHERE {scope} AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: export_messages
SELECT {message_columns}
FROM messages
WHERE {scope} AND conversation_id = :conversation_id
    AND seq > :after
ORDER BY seq
LIMIT CAST(:limit AS BIGINT);

-- name: export_message_lengths
SELECT LENGTH(content) AS length
FROM messages
WHERE {scope} AND conversation_id = :conversation_id
    AND seq > :after
ORDER BY seq
LIMIT CAST(:limit AS BIGINT);

-- name: export_spaces
SELECT {space_columns}, status
FROM spaces
WHERE {scope} AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: export_atoms
SELECT {atom_columns}, origin, slot, slot_value AS value
FROM atoms
WHERE {scope} AND space_id = :space_id AND seq > :after
ORDER BY seq
LIMIT CAST(:limit AS BIGINT);

-- name: export_validity_ends
SELECT seq, by_seq, known_at, valid_to
FROM atom_validity_ends
WHERE {scope} AND space_id = :space_id
    AND seq >= :first AND seq <= :last
ORDER BY seq, by_seq;

-- name: export_embedders
SELECT seq, embedder
FROM atom_vectors
WHERE {scope} AND space_id = :space_id
    AND seq >= :first AND seq <= :last
ORDER BY seq, embedder;

-- name: export_vectors
SELECT seq, embedder, vector
FROM atom_vectors
WHERE {scope} AND space_id = :space_id
    AND seq >= :first AND seq <= :last
ORDER BY seq, embedder;

-- name: export_entities
SELECT {entity_columns}
FROM entities
WHERE {scope} AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: export_jobs
SELECT {job_columns}
FROM jobs
WHERE {scope} AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: export_usage
SELECT {usage_columns}
FROM usage
WHERE {scope} AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);
