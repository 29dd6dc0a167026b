-- other_sources: a JSON list of conversations with the messages in them, where an atom was said again.
-- slot: what an atom says something about, slot_value: what it says.
ALTER TABLE atoms ADD COLUMN other_sources TEXT;
ALTER TABLE atoms ADD COLUMN slot TEXT COLLATE "C";
ALTER TABLE atoms ADD COLUMN slot_value TEXT;

CREATE INDEX atoms_by_slot ON atoms (space_id, slot) WHERE slot IS NOT NULL;
CREATE INDEX atoms_by_source ON atoms (space_id, source_conversation_id) WHERE source_conversation_id IS NOT NULL;
CREATE INDEX atoms_said_again ON atoms (space_id, seq) WHERE other_sources IS NOT NULL;

-- Deleting an atom asks what is about it.
CREATE INDEX atom_entities_of_atom ON atom_entities (space_id, seq);

-- What jobs and other processes look for among all that happens; others cost them nothing.
CREATE INDEX events_of_closing ON events (position) WHERE type IN ('conversation.closed', 'conversation.continued');
CREATE INDEX events_of_erasure ON events (position) WHERE type = 'user.erased';

-- since: the position in the events from which on it holds. about_user: whom it is about, if that is one user.
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
    about_user TEXT COLLATE "C",
    since BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE INDEX bindings_of_app ON bindings (tenant_id, app_id, id);
CREATE INDEX bindings_about ON bindings (tenant_id, app_id, about_user, id);
CREATE INDEX bindings_by_since ON bindings (since);
CREATE INDEX bindings_windowed ON bindings (id) WHERE windowed = 1 AND enabled = 1;

-- attempts counts those since it was queued, runs all there ever were: no two have the same number.
-- due_at and lease_until go by the machine's clock. Jobs of one space are run one after the other, in the order of ids.
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
    owner TEXT,
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

-- Numbers that all processes share: how far events were dispatched, when a schedule last ran.
CREATE TABLE marks (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);

ALTER TABLE jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobs FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON jobs USING (in_scope(tenant_id, app_id, user_id));
ALTER TABLE usage ENABLE ROW LEVEL SECURITY;
ALTER TABLE usage FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON usage USING (in_scope(tenant_id, app_id, user_id));

-- Bindings are those of an app, whoever its users are.
ALTER TABLE bindings ENABLE ROW LEVEL SECURITY;
ALTER TABLE bindings FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON bindings USING (
    (tenant_id = current_setting('tellback.tenant_id', true) AND app_id = current_setting('tellback.app_id', true))
    OR coalesce(current_setting('tellback.platform', true), '') = 'on');
ALTER TABLE marks ENABLE ROW LEVEL SECURITY;
ALTER TABLE marks FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON marks USING (coalesce(current_setting('tellback.platform', true), '') = 'on');
