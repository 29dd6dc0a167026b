-- Where agents' sessions stand; what is said in them is in the conversations of their session_id after `since`.
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
CREATE INDEX conversations_by_session ON conversations (tenant_id, app_id, user_id, session_id, id)
WHERE session_id IS NOT NULL;

ALTER TABLE sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE sessions FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON sessions USING (in_scope(tenant_id, app_id, user_id));
