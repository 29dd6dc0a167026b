-- name: platform_job_next^
SELECT {job_columns}
FROM jobs
WHERE {unblocked_job}
ORDER BY due_at, id
LIMIT 1;

-- name: platform_job_lock_by_id^
SELECT {job_columns}
FROM jobs
WHERE id = :id AND {unblocked_job};

-- name: platform_named_lock!
-- The writer's transaction is the lock.
SELECT 1;

-- name: job_lock^
SELECT id
FROM jobs
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id = :id AND status = 'running'
    AND runs = :run;

-- name: conversation_lock_shared^
SELECT id
FROM conversations
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id = :id;
