-- name: vector_put!
INSERT INTO atom_vectors (tenant_id, app_id, user_id, space_id, seq, version, embedder, vector)
VALUES (:tenant_id, :app_id, :user_id, :space_id, :seq, :version, :embedder, :vector)
ON CONFLICT (space_id, seq, embedder) DO UPDATE
SET version = excluded.version, vector = excluded.vector;

-- name: platform_space_lock^
-- No lock needed: SQLite has one writer at a time.
SELECT 1;

-- name: platform_snapshot!
-- No statement needed: a transaction reads one snapshot.
SELECT 1;

-- name: atoms_of_slot
-- The index is forced: SQLite would otherwise read the whole space.
SELECT {atom_columns}, slot, slot_value AS value
FROM atoms INDEXED BY atoms_by_slot
WHERE {scope} AND space_id = :space_id AND slot = :slot;

-- name: atoms_of_conversation
SELECT {atom_columns}, slot, slot_value AS value
FROM atoms INDEXED BY atoms_by_source
WHERE {scope} AND space_id = :space_id
    AND source_conversation_id = :conversation_id
UNION ALL
SELECT {atom_columns}, slot, slot_value AS value
FROM atoms INDEXED BY atoms_said_again
WHERE {scope} AND space_id = :space_id
    AND other_sources IS NOT NULL AND other_sources LIKE :mention;

