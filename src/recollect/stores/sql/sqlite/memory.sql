-- name: vector_put!
INSERT INTO atom_vectors (tenant_id, app_id, user_id, space_id, seq, version, embedder, vector)
VALUES (:tenant_id, :app_id, :user_id, :space_id, :seq, :version, :embedder, :vector)
ON CONFLICT (space_id, seq, embedder) DO UPDATE
SET version = excluded.version, vector = excluded.vector;

-- name: platform_space_lock^
-- The writer's transaction is the lock.
SELECT 1;

-- name: platform_snapshot!
-- A transaction is of one moment anyway.
SELECT 1;
