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
    PRIMARY KEY (space_id, seq),
    FOREIGN KEY (tenant_id, app_id, user_id, space_id) REFERENCES spaces (tenant_id, app_id, user_id, id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX atoms_by_id ON atoms (id);
CREATE INDEX atoms_by_version ON atoms (space_id, version);
CREATE INDEX atoms_by_category ON atoms (space_id, category, seq);
CREATE UNIQUE INDEX atoms_by_origin ON atoms (space_id, origin) WHERE origin IS NOT NULL;

-- From known_at on, the atom is known not to hold from valid_to on: by_seq began then in its place, or is itself if its
-- end was given with it.
CREATE TABLE atom_closings (
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

CREATE INDEX atom_closings_by_closer ON atom_closings (tenant_id, app_id, user_id, space_id, by_seq);

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
