CREATE TABLE conversations (
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    title TEXT,
    session_id TEXT,
    metadata TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('open', 'closed')),
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    closed_at BIGINT,
    last_seq BIGINT NOT NULL DEFAULT 0,
    turns BIGINT NOT NULL DEFAULT 0,
    turn_id TEXT COLLATE "C",
    rolling_summary TEXT,
    rolling_summary_until_seq BIGINT NOT NULL DEFAULT 0,
    summarized_turns BIGINT NOT NULL DEFAULT 0,
    running_turn TEXT,
    running_owner TEXT,
    running_until BIGINT,
    PRIMARY KEY (tenant_id, app_id, user_id, id)
) WITH (fillfactor = 80);

CREATE INDEX conversations_of_namespace ON conversations (tenant_id, app_id, user_id, namespace, id);
CREATE INDEX conversations_open ON conversations (id) WHERE status = 'open';

-- content: words as they are, or a JSON list of blocks, which begins with a bracket.
CREATE TABLE messages (
    conversation_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    turn_id TEXT COLLATE "C" NOT NULL,
    role TEXT NOT NULL,
    visibility TEXT NOT NULL,
    content TEXT NOT NULL,
    meta TEXT,
    stop_reason TEXT,
    model TEXT,
    provider TEXT,
    usage TEXT,
    trace_id TEXT,
    idempotency_key TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (conversation_id, seq),
    FOREIGN KEY (tenant_id, app_id, user_id, conversation_id) REFERENCES conversations (tenant_id, app_id, user_id, id)
);

CREATE UNIQUE INDEX messages_by_id ON messages (id);
CREATE UNIQUE INDEX messages_by_key ON messages (conversation_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- An id is taken before its transaction commits, so a reader could pass over one that commits late. Positions are given
-- afterwards, to what is committed, by one reader at a time (`platform_events_sequence`): they follow the order of commits.
CREATE TABLE events (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    position BIGINT UNIQUE,
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    type TEXT NOT NULL,
    subject_id TEXT COLLATE "C" NOT NULL,
    data TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE INDEX events_unsequenced ON events (id) WHERE position IS NULL;
CREATE SEQUENCE event_positions;

ALTER TABLE conversations ENABLE ROW LEVEL SECURITY;
ALTER TABLE conversations FORCE ROW LEVEL SECURITY;
ALTER TABLE messages ENABLE ROW LEVEL SECURITY;
ALTER TABLE messages FORCE ROW LEVEL SECURITY;
ALTER TABLE events ENABLE ROW LEVEL SECURITY;
ALTER TABLE events FORCE ROW LEVEL SECURITY;

-- A transaction says whose rows it may touch; one that says nothing sees nothing. Work across users (the event feed,
-- closing what is stale) says so with tellback.platform.
CREATE FUNCTION in_scope(tenant TEXT, app TEXT, usr TEXT) RETURNS BOOLEAN LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (
        tenant = current_setting('tellback.tenant_id', true)
        AND app = current_setting('tellback.app_id', true)
        AND usr = current_setting('tellback.user_id', true)
    ) OR coalesce(current_setting('tellback.platform', true), '') = 'on'
$$;

CREATE POLICY scope ON conversations USING (in_scope(tenant_id, app_id, user_id));
CREATE POLICY scope ON messages USING (in_scope(tenant_id, app_id, user_id));
CREATE POLICY scope ON events USING (in_scope(tenant_id, app_id, user_id));
