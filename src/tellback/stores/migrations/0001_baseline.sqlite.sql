-- The whole schema. Later changes are new numbered files beside this one.

-- close_after: microseconds without a change after which the conversation is closed by itself.
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

-- content: words as they are, or a JSON list of blocks, which begins with a bracket.
-- metadata: the application's own data about a message, as JSON.
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

-- A position must not be given twice, or a cursor would skip what gets it the second time. The next one is that after the
-- newest event, so this one stays: whoever erases events writes one about it first. (AUTOINCREMENT would do as well, for
-- one more page in every commit.)
CREATE TRIGGER events_keep_the_newest BEFORE DELETE ON events
WHEN OLD.position = (SELECT MAX(position) FROM events)
BEGIN
    SELECT RAISE(ABORT, 'the newest event marks the end of the feed and cannot be deleted');
END;

-- What jobs and other processes look for among all that happens; others cost them nothing.
CREATE INDEX close_events ON events (position) WHERE type IN ('conversation.closed', 'conversation.continued');
CREATE INDEX erasure_events ON events (position) WHERE type = 'user.erased';

-- version counts the changes of a space: a row carries that of its last change, so that whoever holds an index of the
-- space reads only what came after. last_seq numbers the atoms, dense from 1.
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

-- origin names what an atom was made from, once: making it again finds it.
-- other_sources: a JSON list of conversations with the messages in them, where an atom was said again.
-- slot: what an atom says something about, slot_value: what it says.
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

-- From known_at on, the atom is known not to hold from valid_to on: by_seq began then in its place, or is itself if its
-- end was given with it.
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

-- vector: little-endian half-precision numbers, made by embedder.
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

-- Every name of an entity that stands for itself, folded.
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

-- Deleting an atom asks what is about it.
CREATE INDEX atom_entities_of_atom ON atom_entities (space_id, seq);

-- since: the position in the events from which on it holds. single_user_id: whom it is about, if that is one user.
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

-- attempts counts those since it was queued, runs all there ever were: no two have the same number.
-- due_at and lease_until go by the machine's clock. Jobs of one space are run one after the other, in the order of ids.
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

-- Numbers that all processes share: how far events were dispatched, when a schedule last ran.
CREATE TABLE platform_state (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

-- Where agents' sessions stand; what is said in them is in the conversations of their session_id after `since`.
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

-- Answers to requests that may come again. Until there is a status, the holder of the claim works on it, up to lease_until.
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
