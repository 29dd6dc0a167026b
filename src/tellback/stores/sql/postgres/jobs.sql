-- name: platform_job_next^
-- Whoever asks at the same time gets the next one.
SELECT {job_columns}
FROM jobs
WHERE {unblocked_job}
ORDER BY due_at, id
LIMIT 1
FOR UPDATE SKIP LOCKED;

-- name: platform_job_lock_by_id^
SELECT {job_columns}
FROM jobs
WHERE id = :id AND {unblocked_job}
FOR UPDATE;

-- name: platform_named_lock^
SELECT pg_advisory_xact_lock(hashtext('tellback.platform_state.' || CAST(:name AS TEXT)), hashtext(current_schema()));

-- name: job_lock^
SELECT id
FROM jobs
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id = :id AND status = 'running'
    AND runs = :run
FOR UPDATE;

-- name: conversation_lock_shared^
SELECT id
FROM conversations
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id = :id
FOR KEY SHARE;
