status = ANY(CAST(:statuses AS TEXT[])) AND created_at <= :known_at AND valid_from <= :begun_at
AND importance >= :importance AND (CAST(:categories AS TEXT[]) IS NULL OR category = ANY(:categories))
AND valid_from <= :until
AND NOT EXISTS (
    SELECT 1
    FROM atom_closings
    WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND space_id = :space_id
        AND atom_closings.seq = atoms.seq
        AND atom_closings.known_at <= :known_at
        AND (atom_closings.valid_to <= :over_at
            OR (atom_closings.valid_to <= :since AND atoms.valid_from < :since)))
