-- Spaces, atoms and their vectors. Every change first increments its space's version, which also locks the space.

-- name: space_create!
INSERT INTO spaces (tenant_id, app_id, user_id, id, name, metadata, status, created_at, updated_at)
VALUES (:tenant_id, :app_id, :user_id, :id, :name, :metadata, 'ACTIVE', :now, :now);

-- name: space_get^
SELECT {space_columns}
FROM spaces
WHERE {scope} AND id = :id AND status = 'ACTIVE';

-- name: space_list
SELECT {space_columns}
FROM spaces
WHERE {scope} AND status = 'ACTIVE'
    AND (CAST(:name AS TEXT) IS NULL OR name = :name)
ORDER BY id;

-- name: space_delete^
UPDATE spaces
SET status = 'DELETED', version = version + 1, updated_at = :now
WHERE {scope} AND id = :id AND status = 'ACTIVE'
RETURNING id;

-- name: space_version^
SELECT version, last_seq
FROM spaces
WHERE {scope} AND id = :id AND status = 'ACTIVE';

-- name: space_lock^
SELECT version, last_seq
FROM spaces
WHERE {scope} AND id = :id AND status = 'ACTIVE'
{for_no_key_update};

-- name: space_touch^
UPDATE spaces
SET version = version + 1, last_seq = last_seq + :added, atom_count = atom_count + :counted, updated_at = :now
WHERE {scope} AND id = :id AND status = 'ACTIVE'
RETURNING version, last_seq;

-- name: space_recount!
UPDATE spaces
SET last_seq = :last_seq, atom_count = atom_count + :counted
WHERE {scope} AND id = :id;

-- name: atom_insert!
INSERT INTO atoms
    (tenant_id, app_id, user_id, space_id, seq, id, version, text, category, kind, importance, confidence, status,
    valid_from, valid_to, created_at, updated_at, supersedes, source_conversation_id, source_message_ids, entity_ids,
    other_sources, origin, slot, slot_value)
VALUES
    (:tenant_id, :app_id, :user_id, :space_id, :seq, :id, :version, :text, :category, :kind, :importance, :confidence,
    'ACTIVE', :valid_from, :valid_to, :now, :now, :supersedes, :source_conversation_id, :source_message_ids,
    :entity_ids, :other_sources, :origin, :slot, :value);

-- name: atom_get^
SELECT {atom_columns}
FROM atoms
WHERE {scope} AND id = :id;

-- name: atom_by_origin^
SELECT {atom_columns}
FROM atoms
WHERE {scope} AND space_id = :space_id AND origin = :origin;

-- name: atom_list
SELECT {atom_columns}
FROM atoms
WHERE {scope} AND space_id = :space_id AND seq < :before
    AND {listed_atoms}
ORDER BY seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: atom_list_in_category
SELECT {atom_columns}
FROM atoms
WHERE {scope} AND space_id = :space_id
    AND category = :category AND seq < :before
    AND {listed_atoms}
ORDER BY seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: atoms_all
SELECT {atom_columns}
FROM atoms
WHERE {scope} AND space_id = :space_id
ORDER BY seq;

-- name: atoms_changed
-- No ORDER BY: with one, SQLite would read the whole space instead of only the changes.
SELECT {atom_columns}
FROM atoms
WHERE {scope} AND space_id = :space_id AND version > :after;

-- name: atom_set_status!
UPDATE atoms
SET status = :status, version = :version, updated_at = :now
WHERE {scope} AND space_id = :space_id AND seq = :seq;

-- name: atom_set_superseded!
UPDATE atoms
SET valid_to = :valid_to, superseded_at = :superseded_at, superseded_by = :superseded_by, version = :version,
    updated_at = :now
WHERE {scope} AND space_id = :space_id AND seq = :seq;

-- name: atom_set_entities!
UPDATE atoms
SET entity_ids = :entity_ids, version = :version, updated_at = :now
WHERE {scope} AND space_id = :space_id AND seq = :seq;

-- name: atom_set_sources!
UPDATE atoms
SET source_conversation_id = :source_conversation_id, source_message_ids = :source_message_ids,
    other_sources = :other_sources, version = :version, updated_at = :now
WHERE {scope} AND space_id = :space_id AND seq = :seq;

-- name: chain_before
-- An atom and the atoms before it in its chain, back to the newest one that ends by `ends`. All atoms before that one
-- also end by `ends`.
WITH RECURSIVE chain AS (
    SELECT seq, id, valid_from, valid_to, superseded_at, superseded_by, supersedes
    FROM atoms
    WHERE {scope} AND space_id = :space_id AND id = :id
    UNION ALL
    SELECT
        atoms.seq, atoms.id, atoms.valid_from, atoms.valid_to, atoms.superseded_at, atoms.superseded_by, atoms.supersedes
    FROM chain
    INNER JOIN atoms ON atoms.id = chain.supersedes
    WHERE {scope} AND space_id = :space_id
        AND (chain.id = :id OR chain.valid_to > :ends)
)
SELECT seq, id, valid_from, valid_to, superseded_at, superseded_by FROM chain;

-- name: chain_after
-- An atom and the later atoms of its chain.
WITH RECURSIVE chain AS (
    SELECT seq, id, valid_from, created_at, superseded_by
    FROM atoms
    WHERE {scope} AND space_id = :space_id AND id = :id
    UNION ALL
    SELECT atoms.seq, atoms.id, atoms.valid_from, atoms.created_at, atoms.superseded_by
    FROM chain
    INNER JOIN atoms ON atoms.id = chain.superseded_by
    WHERE {scope} AND space_id = :space_id
)
SELECT seq, id, valid_from, created_at FROM chain ORDER BY seq;

-- name: chain_ended_by
-- The atom before another one in its chain, and all atoms whose end that other one set.
SELECT seq, id
FROM atoms
WHERE {scope} AND space_id = :space_id
    AND status <> 'DELETED'
    AND seq IN (
        SELECT seq
        FROM atom_validity_ends
        WHERE {scope} AND space_id = :space_id
            AND by_seq = :by_seq AND seq <> :by_seq
        UNION
        SELECT seq
        FROM atoms
        WHERE {scope} AND space_id = :space_id
            AND id = :before)
ORDER BY seq;

-- name: atom_set_superseded_by!
UPDATE atoms
SET superseded_by = :superseded_by, version = :version, updated_at = :now
WHERE {scope} AND space_id = :space_id AND id = :id;

-- name: atom_set_supersedes!
UPDATE atoms
SET supersedes = :supersedes, version = :version, updated_at = :now
WHERE {scope} AND space_id = :space_id AND id = :id;

-- name: validity_end_insert!
INSERT INTO atom_validity_ends (tenant_id, app_id, user_id, space_id, seq, by_seq, known_at, valid_to)
VALUES (:tenant_id, :app_id, :user_id, :space_id, :seq, :by_seq, :known_at, :valid_to);

-- name: validity_end_own^
SELECT valid_to
FROM atom_validity_ends
WHERE {scope} AND space_id = :space_id AND seq = :seq
    AND by_seq = :seq;

-- name: validity_ends_delete_later!
DELETE FROM atom_validity_ends
WHERE {scope} AND space_id = :space_id AND seq = :seq
    AND by_seq > :seq;

-- name: validity_ends_delete_by!
DELETE FROM atom_validity_ends
WHERE {scope} AND space_id = :space_id
    AND by_seq = :by_seq AND seq <> :by_seq;

-- name: validity_ends_all
SELECT seq, known_at, valid_to
FROM atom_validity_ends
WHERE {scope} AND space_id = :space_id;

-- name: validity_ends_changed
-- All ends of the changed atoms. The cross join makes SQLite start with the atoms, not with the table of ends.
SELECT seq, known_at, valid_to
FROM (
    SELECT seq AS of_seq
    FROM atoms
    WHERE {scope} AND space_id = :space_id AND version > :after
) AS changed
CROSS JOIN atom_validity_ends
WHERE {scope} AND space_id = :space_id AND seq = of_seq;

-- name: vectors_changed
SELECT seq, vector
FROM atom_vectors
WHERE {scope} AND space_id = :space_id AND version > :after
    AND embedder = :embedder;

-- name: atoms_to_embed
-- Atoms without a vector of this embedder, newest first: these are the most likely to be recalled.
SELECT seq, text
FROM atoms
WHERE {scope} AND space_id = :space_id AND seq < :before
    AND status <> 'DELETED'
    AND NOT EXISTS (
        SELECT 1
        FROM atom_vectors
        WHERE {scope} AND space_id = :space_id
            AND atom_vectors.seq = atoms.seq AND atom_vectors.embedder = :embedder)
ORDER BY seq DESC
LIMIT CAST(:limit AS BIGINT);

-- name: vectors_delete_other_embedders!
DELETE FROM atom_vectors
WHERE {scope} AND space_id = :space_id
    AND embedder <> :embedder;

-- name: message_dates_of
SELECT id, created_at
FROM messages
WHERE {scope} AND id IN ({listed_ids});
