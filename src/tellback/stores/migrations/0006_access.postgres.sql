-- What a server keeps beside users' data: who may ask, how often, and what was answered.

-- digest: SHA-256 of a key's secret, in hexadecimal. user_id: the one user that a key is for, of the role 'user'.
CREATE TABLE api_keys (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C",
    role TEXT NOT NULL CHECK (role IN ('user', 'app', 'admin')),
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    rate_limit BIGINT,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    CHECK ((role = 'user') = (user_id IS NOT NULL))
);

CREATE INDEX api_keys_of_user ON api_keys (tenant_id, app_id, user_id, id);

-- granted: how much of what was taken was given last.
CREATE TABLE rate_windows (
    name TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    taken BIGINT NOT NULL,
    granted BIGINT NOT NULL,
    PRIMARY KEY (name, number)
) WITH (fillfactor = 50);

CREATE INDEX rate_windows_by_number ON rate_windows (number);

-- Answers to requests that may come again. Until there is a status, the owner works on it, up to lease_until.
CREATE TABLE kept_answers (
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    fingerprint TEXT NOT NULL,
    owner TEXT NOT NULL,
    lease_until BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    finished_at BIGINT,
    status BIGINT,
    content_type TEXT,
    headers TEXT,
    body BYTEA,
    PRIMARY KEY (tenant_id, app_id, user_id, key)
);

CREATE INDEX kept_answers_by_age ON kept_answers (created_at);

-- A user's transaction may read the keys that are this user's own, and changes none.
ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE api_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON api_keys FOR SELECT USING (in_scope(tenant_id, app_id, user_id));
CREATE POLICY platform ON api_keys USING (coalesce(current_setting('tellback.platform', true), '') = 'on');
ALTER TABLE rate_windows ENABLE ROW LEVEL SECURITY;
ALTER TABLE rate_windows FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON rate_windows USING (coalesce(current_setting('tellback.platform', true), '') = 'on');
ALTER TABLE kept_answers ENABLE ROW LEVEL SECURITY;
ALTER TABLE kept_answers FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON kept_answers USING (in_scope(tenant_id, app_id, user_id));
