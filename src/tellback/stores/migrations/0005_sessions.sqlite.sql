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
CREATE INDEX conversations_by_session ON conversations (tenant_id, app_id, user_id, session_id, id)
WHERE session_id IS NOT NULL;
