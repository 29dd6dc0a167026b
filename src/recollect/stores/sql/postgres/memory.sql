-- name: vector_put!
INSERT INTO atom_vectors (tenant_id, app_id, user_id, space_id, seq, version, embedder, vector, numbers)
VALUES (:tenant_id, :app_id, :user_id, :space_id, :seq, :version, :embedder, :vector, CAST(:numbers AS REAL[]))
ON CONFLICT (space_id, seq) DO UPDATE
SET version = excluded.version, embedder = excluded.embedder, vector = excluded.vector, numbers = excluded.numbers;
