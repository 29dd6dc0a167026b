status IN ('queued', 'running') AND due_at <= :at AND (status = 'queued' OR lease_until <= :at)
AND {first_of_space}
