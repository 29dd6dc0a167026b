-- Where a space is too large to be held in a process, the server finds what is worth ranking.

-- name: large_by_words
SELECT seq
FROM atoms
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
    AND words @@ to_tsquery('english'::regconfig, :words)
    AND {of_entities}
    AND {wanted_atoms}
ORDER BY ts_rank_cd(words, to_tsquery('english'::regconfig, :words)) DESC, seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: large_by_meaning
SELECT seq
FROM atoms
INNER JOIN (
    SELECT seq AS of_seq, CAST(numbers AS VECTOR) AS meaning
    FROM atom_vectors
    WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
        AND embedder = :embedder AND cardinality(numbers) = cardinality(CAST(:numbers AS REAL[]))
) AS vectors ON of_seq = seq
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
    AND {of_entities}
    AND {wanted_atoms}
ORDER BY meaning <=> CAST(CAST(:numbers AS REAL[]) AS VECTOR), seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: large_by_entity
SELECT seq
FROM atoms
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
    AND seq IN (
        SELECT seq
        FROM atom_entities
        WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
            AND entity_id = ANY(CAST(:entity_ids AS TEXT[])))
    AND {wanted_atoms}
ORDER BY valid_from DESC, seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: large_by_time
SELECT seq
FROM atoms
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
    AND {wanted_atoms}
ORDER BY valid_from DESC, seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: large_chains
WITH RECURSIVE chain AS (
    SELECT seq, supersedes, superseded_by
    FROM atoms
    WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
        AND seq = ANY(CAST(:seqs AS BIGINT[])) AND (supersedes IS NOT NULL OR superseded_by IS NOT NULL)
    UNION
    SELECT atoms.seq, atoms.supersedes, atoms.superseded_by
    FROM chain
    INNER JOIN atoms ON atoms.id IN (chain.supersedes, chain.superseded_by)
    WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
)
SELECT seq FROM chain;

-- name: large_entities_named
SELECT {entity_columns}
FROM entities
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND status = 'ACTIVE'
    AND id IN (
        SELECT entity_id
        FROM entity_names
        WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
            AND name = ANY(CAST(:names AS TEXT[])))
ORDER BY id;

-- name: large_atoms
SELECT {atom_columns}
FROM atoms
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
    AND seq = ANY(CAST(:seqs AS BIGINT[]))
ORDER BY seq;

-- name: large_closings
SELECT seq, known_at, valid_to
FROM atom_closings
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
    AND seq = ANY(CAST(:seqs AS BIGINT[]))
ORDER BY seq;

-- name: large_vectors
SELECT seq, vector
FROM atom_vectors
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
    AND embedder = :embedder AND seq = ANY(CAST(:seqs AS BIGINT[]))
ORDER BY seq;
