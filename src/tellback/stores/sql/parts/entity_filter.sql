(CAST(:entity_ids AS TEXT[]) IS NULL
    OR seq IN (
        SELECT seq
        FROM atom_entities
        WHERE {scope} AND space_id = :space_id
            AND entity_id = ANY(:entity_ids)))
