-- What a server keeps beside users' data: who may ask, how often, and what was answered.

-- digest: SHA-256 of a key's secret, in hexadecimal. user_id: the one user that a key is for, of the role 'user'.
CREATE TABLE api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT,
    role TEXT NOT NULL CHECK (role IN ('user', 'app', 'admin')),
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    rate_limit INTEGER,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    CHECK ((role = 'user') = (user_id IS NOT NULL))
) WITHOUT ROWID;

CREATE INDEX api_keys_of_user ON api_keys (tenant_id, app_id, user_id, id);

-- granted: how much of what was taken was given last.
CREATE TABLE rate_windows (
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    granted INTEGER NOT NULL,
    PRIMARY KEY (name, number)
) WITHOUT ROWID;

CREATE INDEX rate_windows_by_number ON rate_windows (number);

-- Answers to requests that may come again. Until there is a status, the owner works on it, up to lease_until.
CREATE TABLE kept_answers (
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    owner TEXT NOT NULL,
    lease_until INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    finished_at INTEGER,
    status INTEGER,
    content_type TEXT,
    headers TEXT,
    body BLOB,
    PRIMARY KEY (tenant_id, app_id, user_id, key)
);

CREATE INDEX kept_answers_by_age ON kept_answers (created_at);
