(CAST(:entity_ids AS TEXT[]) IS NULL
    OR seq IN (
        SELECT seq
        FROM atom_entities
        WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
            AND entity_id = ANY(:entity_ids)))
