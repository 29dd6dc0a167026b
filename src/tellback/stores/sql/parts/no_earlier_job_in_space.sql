NOT EXISTS (
    SELECT 1
    FROM jobs AS earlier
    WHERE earlier.space_id = jobs.space_id AND earlier.status IN ('queued', 'running') AND earlier.id < jobs.id)
