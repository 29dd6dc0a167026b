-- The complete schema. Later changes are new numbered files in this folder.

-- close_after: the conversation is closed automatically after this many microseconds without a change.
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
    running_claim_id TEXT,
    running_until BIGINT,
    close_after BIGINT,
    PRIMARY KEY (tenant_id, app_id, user_id, id)
) WITH (fillfactor = 80);

CREATE INDEX conversations_of_namespace ON conversations (tenant_id, app_id, user_id, namespace, id);
CREATE INDEX conversations_open ON conversations (id) WHERE status = 'open';
CREATE INDEX conversations_of_session ON conversations (tenant_id, app_id, user_id, namespace, session_id)
WHERE status = 'open';
CREATE INDEX conversations_closing ON conversations (id) WHERE status = 'open' AND close_after IS NOT NULL;
CREATE INDEX conversations_by_session ON conversations (tenant_id, app_id, user_id, session_id, id)
WHERE session_id IS NOT NULL;

-- content: plain text, or a JSON list of blocks, which begins with a bracket.
-- metadata: the application's data about a message, as JSON.
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
    metadata TEXT,
    PRIMARY KEY (conversation_id, seq),
    FOREIGN KEY (tenant_id, app_id, user_id, conversation_id) REFERENCES conversations (tenant_id, app_id, user_id, id)
);

CREATE UNIQUE INDEX messages_by_id ON messages (id);
CREATE UNIQUE INDEX messages_by_key ON messages (conversation_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Ids are assigned before the commit, so a reader that continues after an id could miss an event that commits late.
-- Positions are assigned after the commit, by one reader at a time (`platform_events_sequence`): they follow the order of
-- commits.
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

-- Partial indexes over the event types that jobs and other processes read, so that other events cost nothing.
CREATE INDEX close_events ON events (position) WHERE type IN ('conversation.closed', 'conversation.continued');
CREATE INDEX erasure_events ON events (position) WHERE type = 'user.erased';

-- version: the number of changes of a space. Each row has the version of its last change, so that a process with a cached
-- index reads only newer rows. last_seq: the number of the newest atom; atoms are numbered from 1 without gaps.
CREATE TABLE spaces (
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    metadata TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ACTIVE', 'DELETED')),
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    version BIGINT NOT NULL DEFAULT 0,
    last_seq BIGINT NOT NULL DEFAULT 0,
    atom_count BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, app_id, user_id, id)
);

CREATE UNIQUE INDEX spaces_by_id ON spaces (id);
CREATE INDEX spaces_by_name ON spaces (tenant_id, app_id, user_id, name, id);

-- origin: the unique source of an atom, so that extracting it again finds it. words has no index, because PostgreSQL does
-- not use one under row-level security (text search is not leakproof); the column saves parsing the texts in each search.
-- other_sources: a JSON list of conversations and messages that confirmed the atom.
-- slot: the attribute that an atom is about, such as the user's home city. slot_value: its value.
CREATE TABLE atoms (
    space_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    text TEXT NOT NULL,
    category TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL,
    importance BIGINT NOT NULL,
    confidence DOUBLE PRECISION NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ACTIVE', 'ARCHIVED', 'DELETED')),
    valid_from BIGINT NOT NULL,
    valid_to BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    superseded_at BIGINT,
    supersedes TEXT COLLATE "C",
    superseded_by TEXT COLLATE "C",
    source_conversation_id TEXT COLLATE "C",
    source_message_ids TEXT NOT NULL,
    entity_ids TEXT NOT NULL,
    origin TEXT COLLATE "C",
    words TSVECTOR GENERATED ALWAYS AS (to_tsvector('english'::regconfig, left(text, 20000))) STORED,
    other_sources TEXT,
    slot TEXT COLLATE "C",
    slot_value TEXT,
    PRIMARY KEY (space_id, seq),
    FOREIGN KEY (tenant_id, app_id, user_id, space_id) REFERENCES spaces (tenant_id, app_id, user_id, id)
);

CREATE UNIQUE INDEX atoms_by_id ON atoms (id);
CREATE INDEX atoms_by_version ON atoms (space_id, version);
CREATE INDEX atoms_by_category ON atoms (space_id, category, seq);
CREATE UNIQUE INDEX atoms_by_origin ON atoms (space_id, origin) WHERE origin IS NOT NULL;
CREATE INDEX atoms_by_slot ON atoms (space_id, slot) WHERE slot IS NOT NULL;
CREATE INDEX atoms_by_source ON atoms (space_id, source_conversation_id) WHERE source_conversation_id IS NOT NULL;
CREATE INDEX atoms_said_again ON atoms (space_id, seq) WHERE other_sources IS NOT NULL;

-- Since known_at it is known that the atom is not valid from valid_to on. by_seq is the atom that replaced it, or the atom
-- itself if it was added with an end.
CREATE TABLE atom_validity_ends (
    space_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    by_seq BIGINT NOT NULL,
    known_at BIGINT NOT NULL,
    valid_to BIGINT NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (space_id, seq, by_seq),
    FOREIGN KEY (space_id, seq) REFERENCES atoms (space_id, seq)
);

CREATE INDEX atom_validity_ends_by_seq ON atom_validity_ends (tenant_id, app_id, user_id, space_id, by_seq);

-- vector: little-endian half-precision numbers from embedder. numbers: the same vector for searches in the database, for
-- spaces that are too large for a process. It is not of pgvector's type, so that pgvector need not be installed.
CREATE TABLE atom_vectors (
    space_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    embedder TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    vector BYTEA NOT NULL,
    numbers REAL[] NOT NULL,
    PRIMARY KEY (space_id, seq, embedder),
    FOREIGN KEY (space_id, seq) REFERENCES atoms (space_id, seq)
);

CREATE INDEX atom_vectors_by_version ON atom_vectors (space_id, embedder, version);

CREATE TABLE entities (
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    space_id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    type TEXT NOT NULL,
    canonical_name TEXT NOT NULL,
    description TEXT,
    attributes TEXT NOT NULL,
    aliases TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ACTIVE', 'MERGED')),
    merged_into TEXT COLLATE "C",
    first_seen_at BIGINT,
    last_seen_at BIGINT,
    atom_count BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, app_id, user_id, id),
    FOREIGN KEY (tenant_id, app_id, user_id, space_id) REFERENCES spaces (tenant_id, app_id, user_id, id)
);

CREATE INDEX entities_of_space ON entities (tenant_id, app_id, user_id, space_id, version);

-- All names of active entities, folded for comparison.
CREATE TABLE entity_names (
    space_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    entity_id TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (space_id, name, entity_id)
);

CREATE INDEX entity_names_of_entity ON entity_names (entity_id);

CREATE TABLE atom_entities (
    space_id TEXT COLLATE "C" NOT NULL,
    entity_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (space_id, entity_id, seq),
    FOREIGN KEY (space_id, seq) REFERENCES atoms (space_id, seq)
);

-- Used to delete an atom together with the rows that refer to it.
CREATE INDEX atom_entities_of_atom ON atom_entities (space_id, seq);

-- since: the position in the events from which on the binding applies. single_user_id: the user, if it applies to one user.
CREATE TABLE bindings (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    created_by TEXT COLLATE "C",
    scopes TEXT NOT NULL,
    space_ids TEXT NOT NULL,
    space_names TEXT NOT NULL,
    policy TEXT NOT NULL,
    enabled BIGINT NOT NULL,
    windowed BIGINT NOT NULL,
    single_user_id TEXT COLLATE "C",
    since BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE INDEX bindings_of_app ON bindings (tenant_id, app_id, id);
CREATE INDEX bindings_by_single_user ON bindings (tenant_id, app_id, single_user_id, id);
CREATE INDEX bindings_by_since ON bindings (since);
CREATE INDEX bindings_windowed ON bindings (id) WHERE windowed = 1 AND enabled = 1;
CREATE INDEX bindings_by_maker ON bindings (tenant_id, app_id, created_by, id);

-- attempts: the number of attempts since the job was queued. runs: the number of all attempts; it is unique per attempt.
-- due_at and lease_until are times of the machine's clock. Jobs of one space run one after the other, in the order of ids.
CREATE TABLE jobs (
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    conversation_id TEXT COLLATE "C" NOT NULL,
    binding_id TEXT COLLATE "C" NOT NULL,
    space_id TEXT COLLATE "C" NOT NULL,
    extraction_version TEXT COLLATE "C" NOT NULL,
    from_seq BIGINT NOT NULL,
    to_seq BIGINT NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    runs BIGINT NOT NULL DEFAULT 0,
    due_at BIGINT NOT NULL,
    instance_id TEXT,
    lease_until BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    finished_at BIGINT,
    error TEXT,
    raw_output TEXT,
    result TEXT,
    PRIMARY KEY (tenant_id, app_id, user_id, id),
    FOREIGN KEY (tenant_id, app_id, user_id, conversation_id) REFERENCES conversations (tenant_id, app_id, user_id, id),
    FOREIGN KEY (tenant_id, app_id, user_id, space_id) REFERENCES spaces (tenant_id, app_id, user_id, id)
);

CREATE UNIQUE INDEX jobs_by_id ON jobs (id);
CREATE UNIQUE INDEX jobs_by_window ON jobs (conversation_id, binding_id, space_id, extraction_version, from_seq);
CREATE INDEX jobs_of_space ON jobs (space_id);
CREATE INDEX jobs_waiting ON jobs (due_at, id) WHERE status IN ('queued', 'running');
CREATE INDEX jobs_unfinished ON jobs (space_id, id) WHERE status IN ('queued', 'running');

CREATE TABLE usage (
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    purpose TEXT NOT NULL,
    job_id TEXT COLLATE "C",
    conversation_id TEXT COLLATE "C",
    model TEXT,
    provider TEXT,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cost_usd DOUBLE PRECISION,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, app_id, user_id, id),
    FOREIGN KEY (tenant_id, app_id, user_id, conversation_id) REFERENCES conversations (tenant_id, app_id, user_id, id)
);

CREATE INDEX usage_by_id ON usage (id);
CREATE INDEX usage_of_conversation ON usage (conversation_id);
CREATE INDEX usage_of_job ON usage (job_id) WHERE job_id IS NOT NULL;

-- Numbers that all processes share: the last dispatched event, the last run of each schedule.
CREATE TABLE platform_state (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);

-- The state of agents' sessions. Their messages are in the conversations with the same session_id, after `since`.
CREATE TABLE sessions (
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    agent_name TEXT,
    status TEXT NOT NULL CHECK (status IN ('active', 'completed', 'abandoned')),
    current_route TEXT,
    current_state TEXT,
    collected_data TEXT NOT NULL,
    message_count BIGINT NOT NULL,
    last_message_at BIGINT,
    completed_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    version BIGINT NOT NULL,
    since TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, app_id, id)
);

CREATE INDEX sessions_of_user ON sessions (tenant_id, app_id, user_id, created_at, id);

-- Data of the server: API keys, rate limits, and responses for repeated requests.

-- digest: the SHA-256 of a key's secret, in hexadecimal. user_id: the user of a key with the role 'user'.
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

-- granted: how much of the last request was granted.
CREATE TABLE rate_windows (
    name TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    taken BIGINT NOT NULL,
    granted BIGINT NOT NULL,
    PRIMARY KEY (name, number)
) WITH (fillfactor = 50);

CREATE INDEX rate_windows_by_number ON rate_windows (number);

-- Responses for requests that may be repeated. Without a status, the holder of the claim is processing it, until lease_until.
CREATE TABLE idempotent_responses (
    tenant_id TEXT COLLATE "C" NOT NULL,
    app_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    fingerprint TEXT NOT NULL,
    claim_token TEXT NOT NULL,
    lease_until BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    finished_at BIGINT,
    status BIGINT,
    content_type TEXT,
    headers TEXT,
    body BYTEA,
    PRIMARY KEY (tenant_id, app_id, user_id, key)
);

CREATE INDEX idempotent_responses_by_age ON idempotent_responses (created_at);

-- A transaction sets the scope whose rows it may read and write; without a scope it sees no rows. Work for all users (the
-- event feed, closing stale conversations) sets tellback.platform instead.
CREATE FUNCTION in_scope(tenant TEXT, app TEXT, usr TEXT) RETURNS BOOLEAN LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (
        tenant = current_setting('tellback.tenant_id', true)
        AND app = current_setting('tellback.app_id', true)
        AND usr = current_setting('tellback.user_id', true)
    ) OR coalesce(current_setting('tellback.platform', true), '') = 'on'
$$;

ALTER TABLE conversations ENABLE ROW LEVEL SECURITY;
ALTER TABLE conversations FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON conversations USING (in_scope(tenant_id, app_id, user_id));

ALTER TABLE messages ENABLE ROW LEVEL SECURITY;
ALTER TABLE messages FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON messages USING (in_scope(tenant_id, app_id, user_id));

ALTER TABLE events ENABLE ROW LEVEL SECURITY;
ALTER TABLE events FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON events USING (in_scope(tenant_id, app_id, user_id));

ALTER TABLE spaces ENABLE ROW LEVEL SECURITY;
ALTER TABLE spaces FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON spaces USING (in_scope(tenant_id, app_id, user_id));

ALTER TABLE atoms ENABLE ROW LEVEL SECURITY;
ALTER TABLE atoms FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON atoms USING (in_scope(tenant_id, app_id, user_id));

ALTER TABLE atom_validity_ends ENABLE ROW LEVEL SECURITY;
ALTER TABLE atom_validity_ends FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON atom_validity_ends USING (in_scope(tenant_id, app_id, user_id));

ALTER TABLE atom_vectors ENABLE ROW LEVEL SECURITY;
ALTER TABLE atom_vectors FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON atom_vectors USING (in_scope(tenant_id, app_id, user_id));

ALTER TABLE entities ENABLE ROW LEVEL SECURITY;
ALTER TABLE entities FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON entities USING (in_scope(tenant_id, app_id, user_id));

ALTER TABLE entity_names ENABLE ROW LEVEL SECURITY;
ALTER TABLE entity_names FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON entity_names USING (in_scope(tenant_id, app_id, user_id));

ALTER TABLE atom_entities ENABLE ROW LEVEL SECURITY;
ALTER TABLE atom_entities FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON atom_entities USING (in_scope(tenant_id, app_id, user_id));

-- Bindings belong to an app, not to a user.
ALTER TABLE bindings ENABLE ROW LEVEL SECURITY;
ALTER TABLE bindings FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON bindings USING (
    (tenant_id = current_setting('tellback.tenant_id', true) AND app_id = current_setting('tellback.app_id', true))
    OR coalesce(current_setting('tellback.platform', true), '') = 'on');

ALTER TABLE jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobs FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON jobs USING (in_scope(tenant_id, app_id, user_id));

ALTER TABLE usage ENABLE ROW LEVEL SECURITY;
ALTER TABLE usage FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON usage USING (in_scope(tenant_id, app_id, user_id));

ALTER TABLE platform_state ENABLE ROW LEVEL SECURITY;
ALTER TABLE platform_state FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON platform_state USING (coalesce(current_setting('tellback.platform', true), '') = 'on');

ALTER TABLE sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE sessions FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON sessions USING (in_scope(tenant_id, app_id, user_id));

-- A user's transaction may read the user's own keys, and may change none.
ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE api_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON api_keys FOR SELECT USING (in_scope(tenant_id, app_id, user_id));
CREATE POLICY platform ON api_keys USING (coalesce(current_setting('tellback.platform', true), '') = 'on');

ALTER TABLE rate_windows ENABLE ROW LEVEL SECURITY;
ALTER TABLE rate_windows FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON rate_windows USING (coalesce(current_setting('tellback.platform', true), '') = 'on');

ALTER TABLE idempotent_responses ENABLE ROW LEVEL SECURITY;
ALTER TABLE idempotent_responses FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON idempotent_responses USING (in_scope(tenant_id, app_id, user_id));
