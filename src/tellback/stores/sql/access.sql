-- What a server keeps beside users' data. Keys are looked up before anyone knows whose they are.

-- name: platform_api_key_create!
INSERT INTO api_keys
    (id, tenant_id, app_id, user_id, role, name, digest, rate_limit, created_at, expires_at, revoked_at)
VALUES
    (:id, :tenant, :app, :user, :role, :name, :digest, :rate_limit, :created_at, :expires_at, :revoked_at);

-- name: platform_api_key_get^
SELECT {api_key_columns}, digest
FROM api_keys
WHERE id = :id;

-- name: platform_api_key_of^
SELECT {api_key_columns}
FROM api_keys
WHERE id = :id AND {of_tenant_and_app};

-- name: platform_api_keys
SELECT {api_key_columns}
FROM api_keys
WHERE {of_tenant_and_app}
ORDER BY id;

-- name: platform_api_key_revoke^
UPDATE api_keys
SET revoked_at = :now
WHERE id = :id AND revoked_at IS NULL AND {of_tenant_and_app}
RETURNING {api_key_columns};

-- name: erase_api_keys
DELETE FROM api_keys
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id
RETURNING 1;

-- name: export_api_keys
SELECT {api_key_columns}
FROM api_keys
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id > :after
ORDER BY id
LIMIT CAST(:limit AS BIGINT);

-- name: platform_rate_take^
-- What is granted is worked out from what was taken before, by whoever holds the row.
INSERT INTO rate_windows (name, number, taken, granted)
VALUES (:name, :window, :first, :first)
ON CONFLICT (name, number) DO UPDATE
SET taken = rate_windows.taken + {rate_granted}, granted = {rate_granted}
RETURNING granted, taken;

-- name: answer_begin^
-- A claim that ran out goes to whoever asks the same; what is older than answers are kept is as good as gone.
INSERT INTO kept_answers (tenant_id, app_id, user_id, key, fingerprint, owner, lease_until, created_at)
VALUES (:tenant_id, :app_id, :user_id, :key, :fingerprint, :owner, :lease_until, :now)
ON CONFLICT (tenant_id, app_id, user_id, key) DO UPDATE
SET fingerprint = excluded.fingerprint, owner = excluded.owner, lease_until = excluded.lease_until,
    created_at = excluded.created_at, finished_at = NULL, status = NULL, content_type = NULL, headers = NULL, body = NULL
WHERE (kept_answers.status IS NOT NULL OR kept_answers.lease_until <= excluded.created_at)
    AND (
        kept_answers.created_at < :kept_since
        OR (kept_answers.status IS NULL AND kept_answers.fingerprint = excluded.fingerprint))
RETURNING owner;

-- name: answer_get^
SELECT fingerprint, status, content_type, headers, body
FROM kept_answers
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND key = :key;

-- name: answer_finish^
UPDATE kept_answers
SET status = :status, content_type = :content_type, headers = :headers, body = :body, finished_at = :now
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND key = :key AND owner = :owner
    AND status IS NULL
RETURNING 1;

-- name: answer_abandon!
DELETE FROM kept_answers
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND key = :key AND owner = :owner
    AND status IS NULL;

-- name: erase_kept_answers
DELETE FROM kept_answers
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id
RETURNING 1;

-- name: export_kept_answers
SELECT key, created_at, finished_at, status, content_type, headers, body
FROM kept_answers
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND key > :after
ORDER BY key
LIMIT CAST(:limit AS BIGINT);

-- name: export_kept_answer_lengths
SELECT COALESCE(LENGTH(body), 0)
FROM kept_answers
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND key > :after
ORDER BY key
LIMIT CAST(:limit AS BIGINT);
