status = :status AND created_at <= :known_at AND valid_from <= :begun_at
AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
AND NOT EXISTS (
    SELECT 1
    FROM atom_validity_ends
    WHERE {scope} AND space_id = :space_id
        AND atom_validity_ends.seq = atoms.seq
        AND atom_validity_ends.known_at <= :known_at AND atom_validity_ends.valid_to <= :valid_at)
