-- name: platform_job_next^
SELECT {job_columns}
FROM jobs
WHERE {unblocked_job}
ORDER BY due_at, id
LIMIT 1;

-- name: platform_job_this^
SELECT {job_columns}
FROM jobs
WHERE id = :id AND {unblocked_job};

-- name: platform_mark_lock!
-- The writer's transaction is the lock.
SELECT 1;
