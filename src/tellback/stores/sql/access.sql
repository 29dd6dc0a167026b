-- Data of the server: API keys, rate limits and stored responses. API keys are looked up before the scope is known.

-- name: platform_api_key_create!
INSERT INTO api_keys
    (id, tenant_id, app_id, user_id, role, name, digest, rate_limit, created_at, expires_at, revoked_at)
VALUES
    (:id, :tenant, :app, :user, :role, :name, :digest, :rate_limit, :created_at, :expires_at, :revoked_at);

-- name: platform_api_key_get^
SELECT {api_key_columns}, digest
FROM api_keys
WHERE id = :id;

-- name: platform_api_key_get_in_app^
SELECT {api_key_columns}
FROM api_keys
WHERE id = :id AND {tenant_app_filter};

-- name: platform_api_keys
SELECT {api_key_columns}
FROM api_keys
WHERE {tenant_app_filter}
ORDER BY id;

-- name: platform_api_key_revoke^
UPDATE api_keys
SET revoked_at = :now
WHERE id = :id AND revoked_at IS NULL AND {tenant_app_filter}
RETURNING {api_key_columns};

-- name: erase_api_keys
DELETE FROM api_keys
WHERE {scope}
RETURNING 1;

-- name: export_api_keys
SELECT {api_key_columns}
FROM api_keys
WHERE {scope} AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: platform_rate_take^
-- The granted amount is computed from the stored amount while the row is locked.
INSERT INTO rate_windows (name, number, taken, granted)
VALUES (:name, :window, :first, :first)
ON CONFLICT (name, number) DO UPDATE
SET taken = rate_windows.taken + {rate_granted}, granted = {rate_granted}
RETURNING granted, taken;

-- name: idempotency_key_claim^
-- A repeated request can take over its expired claim; rows older than the lifetime of responses count as missing.
INSERT INTO idempotent_responses (tenant_id, app_id, user_id, key, fingerprint, claim_token, lease_until, created_at)
VALUES (:tenant_id, :app_id, :user_id, :key, :fingerprint, :claim_token, :lease_until, :now)
ON CONFLICT (tenant_id, app_id, user_id, key) DO UPDATE
SET fingerprint = excluded.fingerprint, claim_token = excluded.claim_token, lease_until = excluded.lease_until,
    created_at = excluded.created_at, finished_at = NULL, status = NULL, content_type = NULL, headers = NULL, body = NULL
WHERE (idempotent_responses.status IS NOT NULL OR idempotent_responses.lease_until <= excluded.created_at)
    AND (
        idempotent_responses.created_at < :expired_before
        OR (idempotent_responses.status IS NULL AND idempotent_responses.fingerprint = excluded.fingerprint))
RETURNING claim_token;

-- name: idempotent_response_get^
SELECT fingerprint, status, content_type, headers, body
FROM idempotent_responses
WHERE {scope} AND key = :key;

-- name: idempotent_response_store^
UPDATE idempotent_responses
SET status = :status, content_type = :content_type, headers = :headers, body = :body, finished_at = :now
WHERE {scope} AND key = :key AND claim_token = :claim_token
    AND status IS NULL
RETURNING 1;

-- name: idempotency_key_release!
DELETE FROM idempotent_responses
WHERE {scope} AND key = :key AND claim_token = :claim_token
    AND status IS NULL;

-- name: erase_idempotent_responses
DELETE FROM idempotent_responses
WHERE {scope}
RETURNING 1;

-- name: export_idempotent_responses
SELECT key, created_at, finished_at, status, content_type, headers, body
FROM idempotent_responses
WHERE {scope} AND key > :after
ORDER BY key
LIMIT CAST(:limit AS BIGINT);

-- name: export_idempotent_response_lengths
SELECT COALESCE(LENGTH(body), 0) AS length
FROM idempotent_responses
WHERE {scope} AND key > :after
ORDER BY key
LIMIT CAST(:limit AS BIGINT);
