-- close_after: microseconds without a change after which the conversation is closed by itself.
ALTER TABLE conversations ADD COLUMN close_after INTEGER;
-- metadata: the application's own data about a message, as JSON.
ALTER TABLE messages ADD COLUMN metadata TEXT;

CREATE INDEX conversations_of_session ON conversations (tenant_id, app_id, user_id, namespace, session_id)
WHERE status = 'open';
CREATE INDEX conversations_closing ON conversations (id) WHERE status = 'open' AND close_after IS NOT NULL;
CREATE INDEX bindings_by_maker ON bindings (tenant_id, app_id, created_by, id);
