-- Candidates for ranking in spaces that are too large to load into a process.

-- name: search_by_text
SELECT seq
FROM atoms
WHERE {scope} AND space_id = :space_id
    AND words @@ to_tsquery('english'::regconfig, :words)
    AND {entity_filter}
    AND {search_filter}
ORDER BY ts_rank_cd(words, to_tsquery('english'::regconfig, :words)) DESC, seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: search_by_vector
SELECT seq
FROM atoms
INNER JOIN (
    SELECT seq AS of_seq, CAST(numbers AS VECTOR) AS meaning
    FROM atom_vectors
    WHERE {scope} AND space_id = :space_id
        AND embedder = :embedder AND cardinality(numbers) = cardinality(CAST(:numbers AS REAL[]))
) AS vectors ON of_seq = seq
WHERE {scope} AND space_id = :space_id
    AND {entity_filter}
    AND {search_filter}
ORDER BY meaning <=> CAST(CAST(:numbers AS REAL[]) AS VECTOR), seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: search_by_entity
SELECT seq
FROM atoms
WHERE {scope} AND space_id = :space_id
    AND seq IN (
        SELECT seq
        FROM atom_entities
        WHERE {scope} AND space_id = :space_id
            AND entity_id = ANY(CAST(:entity_ids AS TEXT[])))
    AND {search_filter}
ORDER BY valid_from DESC, seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: search_by_time
SELECT seq
FROM atoms
WHERE {scope} AND space_id = :space_id
    AND {search_filter}
ORDER BY valid_from DESC, seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: search_chains
WITH RECURSIVE chain AS (
    SELECT seq, supersedes, superseded_by
    FROM atoms
    WHERE {scope} AND space_id = :space_id
        AND seq = ANY(CAST(:seqs AS BIGINT[])) AND (supersedes IS NOT NULL OR superseded_by IS NOT NULL)
    UNION
    SELECT atoms.seq, atoms.supersedes, atoms.superseded_by
    FROM chain
    INNER JOIN atoms ON atoms.id IN (chain.supersedes, chain.superseded_by)
    WHERE {scope} AND space_id = :space_id
)
SELECT seq FROM chain;

-- name: search_entities_named
SELECT {entity_columns}
FROM entities
WHERE {scope} AND status = 'ACTIVE'
    AND id IN (
        SELECT entity_id
        FROM entity_names
        WHERE {scope} AND space_id = :space_id
            AND name = ANY(CAST(:names AS TEXT[])))
ORDER BY id;

-- name: search_atoms
SELECT {atom_columns}
FROM atoms
WHERE {scope} AND space_id = :space_id
    AND seq = ANY(CAST(:seqs AS BIGINT[]))
ORDER BY seq;

-- name: search_validity_ends
SELECT seq, known_at, valid_to
FROM atom_validity_ends
WHERE {scope} AND space_id = :space_id
    AND seq = ANY(CAST(:seqs AS BIGINT[]))
ORDER BY seq;

-- name: search_vectors
SELECT seq, vector
FROM atom_vectors
WHERE {scope} AND space_id = :space_id
    AND embedder = :embedder AND seq = ANY(CAST(:seqs AS BIGINT[]))
ORDER BY seq;
