-- SKIP LOCKED: processes that clean up at the same time delete different rows.

-- name: platform_rates_delete_expired!
DELETE FROM rate_windows
WHERE (name, number) IN (
    SELECT name, number
    FROM rate_windows
    WHERE number < :before
    ORDER BY number
    LIMIT CAST(:limit AS BIGINT)
    FOR UPDATE SKIP LOCKED);

-- name: platform_idempotent_responses_delete_expired
DELETE FROM idempotent_responses
WHERE (tenant_id, app_id, user_id, key) IN (
    SELECT tenant_id, app_id, user_id, key
    FROM idempotent_responses
    WHERE created_at < :before
    ORDER BY created_at
    LIMIT CAST(:limit AS BIGINT)
    FOR UPDATE SKIP LOCKED)
RETURNING 1;
