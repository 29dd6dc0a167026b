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
    running_owner TEXT,
    running_until INTEGER,
    PRIMARY KEY (tenant_id, app_id, user_id, id)
) WITHOUT ROWID;

CREATE INDEX conversations_of_namespace ON conversations (tenant_id, app_id, user_id, namespace, id);
CREATE INDEX conversations_open ON conversations (id) WHERE status = 'open';

-- content: words as they are, or a JSON list of blocks, which begins with a bracket.
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
