status = ANY(CAST(:statuses AS TEXT[])) AND created_at <= :known_at AND valid_from <= :started_by
AND importance >= :min_importance AND (CAST(:categories AS TEXT[]) IS NULL OR category = ANY(:categories))
AND valid_from <= :until
AND NOT EXISTS (
    SELECT 1
    FROM atom_validity_ends
    WHERE {scope} AND space_id = :space_id
        AND atom_validity_ends.seq = atoms.seq
        AND atom_validity_ends.known_at <= :known_at
        AND (atom_validity_ends.valid_to <= :ends_after
            OR (atom_validity_ends.valid_to <= :since AND atoms.valid_from < :since)))
