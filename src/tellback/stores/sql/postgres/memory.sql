-- name: vector_put!
INSERT INTO atom_vectors (tenant_id, app_id, user_id, space_id, seq, version, embedder, vector, numbers)
VALUES (:tenant_id, :app_id, :user_id, :space_id, :seq, :version, :embedder, :vector, CAST(:numbers AS REAL[]))
ON CONFLICT (space_id, seq, embedder) DO UPDATE
SET version = excluded.version, vector = excluded.vector, numbers = excluded.numbers;

-- name: platform_space_lock^
-- Of those who make a space of one name at once, one goes first.
SELECT pg_advisory_xact_lock(
    hashtext('tellback.spaces'),
    hashtext(CAST(:tenant_id AS TEXT) || '/' || CAST(:app_id AS TEXT) || '/' || CAST(:user_id AS TEXT) || '/' || CAST(:name AS TEXT)));

-- name: platform_snapshot!
-- What is read from here on is of one moment, whatever is committed meanwhile.
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

