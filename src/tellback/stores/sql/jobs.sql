-- Jobs: open, running and finished work.

-- name: job_insert^
INSERT INTO jobs
    (tenant_id, app_id, user_id, id, kind, status, conversation_id, binding_id, space_id, extraction_version, from_seq,
    to_seq, due_at, created_at, updated_at)
VALUES
    (:tenant_id, :app_id, :user_id, :id, :kind, 'queued', :conversation_id, :binding_id, :space_id, :version, :from_seq,
    :to_seq, :due_at, :now, :now)
ON CONFLICT (conversation_id, binding_id, space_id, extraction_version, from_seq) DO NOTHING
RETURNING {job_columns};

-- name: job_get^
SELECT {job_columns}
FROM jobs
WHERE {scope} AND id = :id;

-- name: job_list
SELECT {job_columns}
FROM jobs
WHERE {scope}
    AND (CAST(:status AS TEXT) IS NULL OR status = :status)
    AND (CAST(:conversation_id AS TEXT) IS NULL OR conversation_id = :conversation_id)
    AND (CAST(:before AS TEXT) IS NULL OR id < :before)
ORDER BY id DESC
LIMIT CAST(:limit AS BIGINT);

-- name: jobs_of_target
-- All jobs of one conversation, binding, space and version, in the order of their windows.
SELECT {job_columns}
FROM jobs
WHERE {scope} AND conversation_id = :conversation_id
    AND binding_id = :binding_id AND space_id = :space_id AND extraction_version = :version
ORDER BY from_seq;

-- name: job_last_of_target^
-- The end of the last window. Windows are consecutive, so all messages up to it have jobs.
SELECT to_seq
FROM jobs
WHERE {scope} AND conversation_id = :conversation_id
    AND binding_id = :binding_id AND space_id = :space_id AND extraction_version = :version
ORDER BY from_seq DESC
LIMIT 1;

-- name: job_end^
-- A run that has lost its lease changes nothing.
UPDATE jobs
SET status = :status, due_at = :due_at, attempts = attempts - :uncounted, instance_id = NULL, lease_until = NULL,
    updated_at = :now, finished_at = :finished_at, error = :error, raw_output = :raw_output, result = :result
WHERE {scope} AND id = :id AND status = 'running'
    AND runs = :run
RETURNING {job_columns};

-- name: job_requeue^
UPDATE jobs
SET status = 'queued', attempts = 0, due_at = :due_at, instance_id = NULL, lease_until = NULL, updated_at = :now,
    finished_at = NULL, error = NULL, raw_output = NULL, result = NULL
WHERE {scope} AND id = :id
    AND status NOT IN ('queued', 'running')
RETURNING {job_columns};

-- name: job_cancel^
UPDATE jobs
SET status = 'cancelled', instance_id = NULL, lease_until = NULL, updated_at = :now, finished_at = :now
WHERE {scope} AND id = :id
    AND status IN ('queued', 'running')
RETURNING {job_columns};

-- name: message_lengths
-- The lengths of messages, from which windows are computed.
SELECT seq, turn_id, role, stop_reason, LENGTH(content) AS length
FROM messages
WHERE {scope} AND conversation_id = :conversation_id
    AND seq > :after
ORDER BY seq;

-- name: usage_insert!
-- Storing a record again is safe: it has no effect.
INSERT INTO usage
    (tenant_id, app_id, user_id, id, purpose, job_id, conversation_id, model, provider, input_tokens, output_tokens,
    cost_usd, created_at)
VALUES
    (:tenant_id, :app_id, :user_id, :id, :purpose, :job_id, :conversation_id, :model, :provider, :input_tokens,
    :output_tokens, :cost_usd, :created_at)
ON CONFLICT (tenant_id, app_id, user_id, id) DO NOTHING;

-- name: usage_list
SELECT {usage_columns}
FROM usage
WHERE {scope}
    AND (CAST(:job_id AS TEXT) IS NULL OR job_id = :job_id) AND created_at >= :since AND created_at < :until
    AND (CAST(:before AS TEXT) IS NULL OR id < :before)
ORDER BY id DESC
LIMIT CAST(:limit AS BIGINT);

-- name: usage_total
SELECT tenant_id, app_id, user_id, {usage_sums}
FROM usage
WHERE {scope} AND created_at >= :since AND created_at < :until
GROUP BY tenant_id, app_id, user_id, purpose, model
ORDER BY MAX(id) DESC;

-- name: platform_job_get^
SELECT {job_columns}
FROM jobs
WHERE id = :id;

-- name: platform_job_list
SELECT {job_columns}
FROM jobs
WHERE {tenant_app_filter}
    AND (CAST(:status AS TEXT) IS NULL OR status = :status)
    AND (CAST(:conversation_id AS TEXT) IS NULL OR conversation_id = :conversation_id)
    AND (CAST(:before AS TEXT) IS NULL OR id < :before)
ORDER BY id DESC
LIMIT CAST(:limit AS BIGINT);

-- name: platform_job_claim^
UPDATE jobs
SET status = 'running', attempts = attempts + 1, runs = runs + 1, instance_id = :instance_id, lease_until = :until, updated_at = :now
WHERE id = :id
RETURNING {job_columns};

-- name: platform_job_extend^
UPDATE jobs
SET lease_until = :until
WHERE id = :id AND status = 'running' AND runs = :run
RETURNING id;

-- name: platform_running_instances
-- Both statuses are listed, although only running jobs match, so that SQLite uses the small index of unfinished jobs.
SELECT DISTINCT instance_id
FROM jobs
WHERE status IN ('queued', 'running') AND status = 'running' AND instance_id IS NOT NULL;

-- name: platform_job_release
UPDATE jobs
SET status = 'queued', instance_id = NULL, lease_until = NULL, updated_at = :now
WHERE status IN ('queued', 'running') AND status = 'running' AND instance_id = :instance_id
RETURNING {job_columns};

-- name: platform_jobs_waiting^
-- Counts up to the limit only: it is called often, and there may be many jobs.
SELECT
    (SELECT COUNT(*)
    FROM (
        SELECT 1
        FROM jobs
        WHERE status IN ('queued', 'running') AND (status = 'running' OR (due_at <= :at AND {no_earlier_job_in_space}))
        LIMIT CAST(:limit AS BIGINT)
    ) AS due) AS waiting,
    (SELECT MIN(due_at) FROM jobs WHERE status IN ('queued', 'running') AND due_at > :at) AS next_due_at;

-- name: platform_usage_list
SELECT {usage_columns}
FROM usage
WHERE {tenant_app_filter}
    AND (CAST(:job_id AS TEXT) IS NULL OR job_id = :job_id) AND created_at >= :since AND created_at < :until
    AND (CAST(:before AS TEXT) IS NULL OR id < :before)
ORDER BY id DESC
LIMIT CAST(:limit AS BIGINT);

-- name: platform_usage_total
SELECT tenant_id, app_id, user_id, {usage_sums}
FROM usage
WHERE {tenant_app_filter} AND created_at >= :since AND created_at < :until
GROUP BY tenant_id, app_id, user_id, purpose, model
ORDER BY MAX(id) DESC;

-- name: platform_close_events
SELECT position, tenant_id, app_id, user_id, subject_id
FROM events
WHERE type IN ('conversation.closed', 'conversation.continued') AND position > :after AND position <= :until
ORDER BY position
LIMIT CAST(:limit AS BIGINT);

-- name: platform_events_for_extraction
SELECT position, tenant_id, app_id, user_id, subject_id
FROM events
WHERE type IN ('conversation.closed', 'conversation.continued', 'message.appended')
    AND position > :after AND position <= :until
ORDER BY position
LIMIT CAST(:limit AS BIGINT);

-- name: platform_state_get^
SELECT value FROM platform_state WHERE name = :name;

-- name: platform_state_set!
INSERT INTO platform_state (name, value)
VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: platform_job_next^
-- SKIP LOCKED: concurrent claims get different jobs.
SELECT {job_columns}
FROM jobs
WHERE {unblocked_job}
ORDER BY due_at, id
LIMIT 1
{for_update_skip_locked};

-- name: platform_job_lock_by_id^
SELECT {job_columns}
FROM jobs
WHERE id = :id AND {unblocked_job}
{for_update};

-- name: job_lock^
SELECT id
FROM jobs
WHERE {scope} AND id = :id AND status = 'running'
    AND runs = :run
{for_update};

-- name: conversation_lock_shared^
SELECT id
FROM conversations
WHERE {scope} AND id = :id
{for_key_share};
