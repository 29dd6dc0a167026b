-- The complete schema. Later changes are new numbered files in this folder.

-- close_after: the conversation is closed automatically after this many microseconds without a change.
CREATE TABLE conversations (
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    title TEXT,
    session_id TEXT,
    metadata TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('open', 'closed')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    closed_at INTEGER,
    last_seq INTEGER NOT NULL DEFAULT 0,
    turns INTEGER NOT NULL DEFAULT 0,
    turn_id TEXT,
    rolling_summary TEXT,
    rolling_summary_until_seq INTEGER NOT NULL DEFAULT 0,
    summarized_turns INTEGER NOT NULL DEFAULT 0,
    running_turn TEXT,
    running_claim_id TEXT,
    running_until INTEGER,
    close_after INTEGER,
    PRIMARY KEY (tenant_id, app_id, user_id, id)
) WITHOUT ROWID;

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
    conversation_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
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
    created_at INTEGER NOT NULL,
    metadata TEXT,
    PRIMARY KEY (conversation_id, seq),
    FOREIGN KEY (tenant_id, app_id, user_id, conversation_id) REFERENCES conversations (tenant_id, app_id, user_id, id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX messages_by_id ON messages (id);
CREATE UNIQUE INDEX messages_by_key ON messages (conversation_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    type TEXT NOT NULL,
    subject_id TEXT NOT NULL,
    data TEXT NOT NULL,
    created_at INTEGER NOT NULL
);

-- A position must never be reused, or a cursor would skip the second event with it. The next position follows the newest
-- event, so the newest event is never deleted: code that erases events first appends an event about the erasure.
-- (AUTOINCREMENT would also work, but writes one more page in every commit.)
CREATE TRIGGER events_keep_the_newest BEFORE DELETE ON events
WHEN OLD.position = (SELECT MAX(position) FROM events)
BEGIN
    SELECT RAISE(ABORT, 'the newest event marks the end of the feed and cannot be deleted');
END;

-- Partial indexes over the event types that jobs and other processes read, so that other events cost nothing.
CREATE INDEX close_events ON events (position) WHERE type IN ('conversation.closed', 'conversation.continued');
CREATE INDEX erasure_events ON events (position) WHERE type = 'user.erased';

-- version: the number of changes of a space. Each row has the version of its last change, so that a process with a cached
-- index reads only newer rows. last_seq: the number of the newest atom; atoms are numbered from 1 without gaps.
CREATE TABLE spaces (
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    metadata TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ACTIVE', 'DELETED')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    version INTEGER NOT NULL DEFAULT 0,
    last_seq INTEGER NOT NULL DEFAULT 0,
    atom_count INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, app_id, user_id, id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX spaces_by_id ON spaces (id);
CREATE INDEX spaces_by_name ON spaces (tenant_id, app_id, user_id, name, id);

-- origin: the unique source of an atom, so that extracting it again finds it.
-- other_sources: a JSON list of conversations and messages that confirmed the atom.
-- slot: the attribute that an atom is about, such as the user's home city. slot_value: its value.
CREATE TABLE atoms (
    space_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    text TEXT NOT NULL,
    category TEXT NOT NULL,
    kind TEXT NOT NULL,
    importance INTEGER NOT NULL,
    confidence REAL NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ACTIVE', 'ARCHIVED', 'DELETED')),
    valid_from INTEGER NOT NULL,
    valid_to INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    superseded_at INTEGER,
    supersedes TEXT,
    superseded_by TEXT,
    source_conversation_id TEXT,
    source_message_ids TEXT NOT NULL,
    entity_ids TEXT NOT NULL,
    origin TEXT,
    other_sources TEXT,
    slot TEXT,
    slot_value TEXT,
    PRIMARY KEY (space_id, seq),
    FOREIGN KEY (tenant_id, app_id, user_id, space_id) REFERENCES spaces (tenant_id, app_id, user_id, id)
) WITHOUT ROWID;

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
    space_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    by_seq INTEGER NOT NULL,
    known_at INTEGER NOT NULL,
    valid_to INTEGER NOT NULL,
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    PRIMARY KEY (space_id, seq, by_seq),
    FOREIGN KEY (space_id, seq) REFERENCES atoms (space_id, seq)
) WITHOUT ROWID;

CREATE INDEX atom_validity_ends_by_seq ON atom_validity_ends (tenant_id, app_id, user_id, space_id, by_seq);

-- vector: little-endian half-precision numbers from embedder.
CREATE TABLE atom_vectors (
    space_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    embedder TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (space_id, seq, embedder),
    FOREIGN KEY (space_id, seq) REFERENCES atoms (space_id, seq)
) WITHOUT ROWID;

CREATE INDEX atom_vectors_by_version ON atom_vectors (space_id, embedder, version);

CREATE TABLE entities (
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    space_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    type TEXT NOT NULL,
    canonical_name TEXT NOT NULL,
    description TEXT,
    attributes TEXT NOT NULL,
    aliases TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ACTIVE', 'MERGED')),
    merged_into TEXT,
    first_seen_at INTEGER,
    last_seen_at INTEGER,
    atom_count INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, app_id, user_id, id),
    FOREIGN KEY (tenant_id, app_id, user_id, space_id) REFERENCES spaces (tenant_id, app_id, user_id, id)
) WITHOUT ROWID;

CREATE INDEX entities_of_space ON entities (tenant_id, app_id, user_id, space_id, version);

-- All names of active entities, folded for comparison.
CREATE TABLE entity_names (
    space_id TEXT NOT NULL,
    name TEXT NOT NULL,
    entity_id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    PRIMARY KEY (space_id, name, entity_id)
) WITHOUT ROWID;

CREATE INDEX entity_names_of_entity ON entity_names (entity_id);

CREATE TABLE atom_entities (
    space_id TEXT NOT NULL,
    entity_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    PRIMARY KEY (space_id, entity_id, seq),
    FOREIGN KEY (space_id, seq) REFERENCES atoms (space_id, seq)
) WITHOUT ROWID;

-- Used to delete an atom together with the rows that refer to it.
CREATE INDEX atom_entities_of_atom ON atom_entities (space_id, seq);

-- since: the position in the events from which on the binding applies. single_user_id: the user, if it applies to one user.
CREATE TABLE bindings (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    created_by TEXT,
    scopes TEXT NOT NULL,
    space_ids TEXT NOT NULL,
    space_names TEXT NOT NULL,
    policy TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    windowed INTEGER NOT NULL,
    single_user_id TEXT,
    since INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX bindings_of_app ON bindings (tenant_id, app_id, id);
CREATE INDEX bindings_by_single_user ON bindings (tenant_id, app_id, single_user_id, id);
CREATE INDEX bindings_by_since ON bindings (since);
CREATE INDEX bindings_windowed ON bindings (id) WHERE windowed = 1 AND enabled = 1;
CREATE INDEX bindings_by_maker ON bindings (tenant_id, app_id, created_by, id);

-- attempts: the number of attempts since the job was queued. runs: the number of all attempts; it is unique per attempt.
-- due_at and lease_until are times of the machine's clock. Jobs of one space run one after the other, in the order of ids.
CREATE TABLE jobs (
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    conversation_id TEXT NOT NULL,
    binding_id TEXT NOT NULL,
    space_id TEXT NOT NULL,
    extraction_version TEXT NOT NULL,
    from_seq INTEGER NOT NULL,
    to_seq INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    runs INTEGER NOT NULL DEFAULT 0,
    due_at INTEGER NOT NULL,
    instance_id TEXT,
    lease_until INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    finished_at INTEGER,
    error TEXT,
    raw_output TEXT,
    result TEXT,
    PRIMARY KEY (tenant_id, app_id, user_id, id),
    FOREIGN KEY (tenant_id, app_id, user_id, conversation_id) REFERENCES conversations (tenant_id, app_id, user_id, id),
    FOREIGN KEY (tenant_id, app_id, user_id, space_id) REFERENCES spaces (tenant_id, app_id, user_id, id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX jobs_by_id ON jobs (id);
CREATE UNIQUE INDEX jobs_by_window ON jobs (conversation_id, binding_id, space_id, extraction_version, from_seq);
CREATE INDEX jobs_of_space ON jobs (space_id);
CREATE INDEX jobs_waiting ON jobs (due_at, id) WHERE status IN ('queued', 'running');
CREATE INDEX jobs_unfinished ON jobs (space_id, id) WHERE status IN ('queued', 'running');

CREATE TABLE usage (
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    purpose TEXT NOT NULL,
    job_id TEXT,
    conversation_id TEXT,
    model TEXT,
    provider TEXT,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_usd REAL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, app_id, user_id, id),
    FOREIGN KEY (tenant_id, app_id, user_id, conversation_id) REFERENCES conversations (tenant_id, app_id, user_id, id)
) WITHOUT ROWID;

CREATE INDEX usage_by_id ON usage (id);
CREATE INDEX usage_of_conversation ON usage (conversation_id);
CREATE INDEX usage_of_job ON usage (job_id) WHERE job_id IS NOT NULL;

-- Numbers that all processes share: the last dispatched event, the last run of each schedule.
CREATE TABLE platform_state (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

-- The state of agents' sessions. Their messages are in the conversations with the same session_id, after `since`.
CREATE TABLE sessions (
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    agent_name TEXT,
    status TEXT NOT NULL CHECK (status IN ('active', 'completed', 'abandoned')),
    current_route TEXT,
    current_state TEXT,
    collected_data TEXT NOT NULL,
    message_count INTEGER NOT NULL,
    last_message_at INTEGER,
    completed_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    since TEXT NOT NULL,
    PRIMARY KEY (tenant_id, app_id, id)
);

CREATE INDEX sessions_of_user ON sessions (tenant_id, app_id, user_id, created_at, id);

-- Data of the server: API keys, rate limits, and responses for repeated requests.

-- digest: the SHA-256 of a key's secret, in hexadecimal. user_id: the user of a key with the role 'user'.
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

-- granted: how much of the last request was granted.
CREATE TABLE rate_windows (
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    granted INTEGER NOT NULL,
    PRIMARY KEY (name, number)
) WITHOUT ROWID;

CREATE INDEX rate_windows_by_number ON rate_windows (number);

-- Responses for requests that may be repeated. Without a status, the holder of the claim is processing it, until lease_until.
CREATE TABLE idempotent_responses (
    tenant_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    claim_token TEXT NOT NULL,
    lease_until INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    finished_at INTEGER,
    status INTEGER,
    content_type TEXT,
    headers TEXT,
    body BLOB,
    PRIMARY KEY (tenant_id, app_id, user_id, key)
);

CREATE INDEX idempotent_responses_by_age ON idempotent_responses (created_at);
