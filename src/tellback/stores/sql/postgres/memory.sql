-- name: vector_put!
INSERT INTO atom_vectors (tenant_id, app_id, user_id, space_id, seq, version, embedder, vector, numbers)
VALUES (:tenant_id, :app_id, :user_id, :space_id, :seq, :version, :embedder, :vector, CAST(:numbers AS REAL[]))
ON CONFLICT (space_id, seq, embedder) DO UPDATE
SET version = excluded.version, vector = excluded.vector, numbers = excluded.numbers;

-- name: platform_space_lock^
-- Serializes the creation of spaces with one name.
SELECT pg_advisory_xact_lock(
    hashtext('tellback.spaces'),
    hashtext(CAST(:tenant_id AS TEXT) || '/' || CAST(:app_id AS TEXT) || '/' || CAST(:user_id AS TEXT) || '/' || CAST(:name AS TEXT)));

-- name: platform_snapshot!
-- The rest of the transaction reads one snapshot.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;

-- name: atoms_of_slot
SELECT {atom_columns}, slot, slot_value AS value
FROM atoms
WHERE {scope} AND space_id = :space_id AND slot = :slot;

-- name: atoms_of_conversation
SELECT {atom_columns}, slot, slot_value AS value
FROM atoms
WHERE {scope} AND space_id = :space_id
    AND source_conversation_id = :conversation_id
UNION ALL
SELECT {atom_columns}, slot, slot_value AS value
FROM atoms
WHERE {scope} AND space_id = :space_id
    AND other_sources IS NOT NULL AND other_sources LIKE :mention;

