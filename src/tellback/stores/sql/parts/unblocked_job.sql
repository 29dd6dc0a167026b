status IN ('queued', 'running') AND due_at <= :at AND (status = 'queued' OR lease_until <= :at)
AND {no_earlier_job_in_space}
