-- name: entity_insert!
INSERT INTO entities
    (tenant_id, app_id, user_id, id, space_id, version, type, canonical_name, description, attributes, aliases, status,
    created_at, updated_at)
VALUES
    (:tenant_id, :app_id, :user_id, :id, :space_id, :version, :type, :canonical_name, :description, :attributes,
    :aliases, 'ACTIVE', :now, :now);

-- name: entity_get^
SELECT {entity_columns}
FROM entities
WHERE {scope} AND id = :id;

-- name: entity_list
SELECT {entity_columns}
FROM entities
WHERE {scope} AND space_id = :space_id
    AND status = 'ACTIVE' AND (CAST(:type AS TEXT) IS NULL OR type = :type) AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: entities_changed
SELECT {entity_columns}
FROM entities
WHERE {scope} AND space_id = :space_id AND version > :after;

-- name: entities_by_name
SELECT {entity_columns}
FROM entities
WHERE {scope} AND status = 'ACTIVE'
    AND (CAST(:type AS TEXT) IS NULL OR type = :type)
    AND id IN (
        SELECT entity_id
        FROM entity_names
        WHERE {scope} AND space_id = :space_id AND name = :name)
ORDER BY id;

-- name: entity_names_of
SELECT name
FROM entity_names
WHERE {scope} AND entity_id = :entity_id;

-- name: entity_name_insert!
INSERT INTO entity_names (tenant_id, app_id, user_id, space_id, name, entity_id)
VALUES (:tenant_id, :app_id, :user_id, :space_id, :name, :entity_id)
ON CONFLICT DO NOTHING;

-- name: entity_names_delete!
DELETE FROM entity_names
WHERE {scope} AND entity_id = :entity_id;

-- name: entity_update_stats!
-- Changes the number of atoms about the entity. seen_at is NULL if the times must not change.
UPDATE entities
SET
    atom_count = atom_count + :counted,
    first_seen_at = CASE WHEN first_seen_at <= :seen_at THEN first_seen_at ELSE COALESCE(:seen_at, first_seen_at) END,
    last_seen_at = CASE WHEN last_seen_at >= :seen_at THEN last_seen_at ELSE COALESCE(:seen_at, last_seen_at) END,
    version = :version,
    updated_at = :now
WHERE {scope} AND id = :id;

-- name: entity_set_aliases!
UPDATE entities
SET aliases = :aliases, version = :version, updated_at = :now
WHERE {scope} AND id = :id;

-- name: entity_absorb_alias!
UPDATE entities
SET
    aliases = :aliases, atom_count = :atom_count, first_seen_at = :first_seen_at, last_seen_at = :last_seen_at,
    version = :version, updated_at = :now
WHERE {scope} AND id = :id;

-- name: entity_mark_merged!
UPDATE entities
SET status = 'MERGED', merged_into = :merged_into, atom_count = 0, version = :version, updated_at = :now
WHERE {scope} AND id = :id;

-- name: link_insert!
INSERT INTO atom_entities (tenant_id, app_id, user_id, space_id, entity_id, seq)
VALUES (:tenant_id, :app_id, :user_id, :space_id, :entity_id, :seq)
ON CONFLICT DO NOTHING;

-- name: links_delete!
DELETE FROM atom_entities
WHERE {scope} AND space_id = :space_id
    AND entity_id = :entity_id;

-- name: atoms_of_entity
SELECT seq, status, entity_ids
FROM atoms
WHERE {scope} AND space_id = :space_id
    AND seq IN (
        SELECT seq
        FROM atom_entities
        WHERE {scope} AND space_id = :space_id
            AND entity_id = :entity_id);
