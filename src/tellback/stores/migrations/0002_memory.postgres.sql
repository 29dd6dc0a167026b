-- version counts the changes of a space: a row carries that of its last change, so that whoever holds an index of the
-- space reads only what came after. last_seq numbers the atoms, dense from 1.
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

-- origin names what an atom was made from, once: making it again finds it. words has no index: under row-level security
-- the server would never use it, as matching words is not leakproof. It saves reading the texts again for every search.
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
    PRIMARY KEY (space_id, seq),
    FOREIGN KEY (tenant_id, app_id, user_id, space_id) REFERENCES spaces (tenant_id, app_id, user_id, id)
);

CREATE UNIQUE INDEX atoms_by_id ON atoms (id);
CREATE INDEX atoms_by_version ON atoms (space_id, version);
CREATE INDEX atoms_by_category ON atoms (space_id, category, seq);
CREATE UNIQUE INDEX atoms_by_origin ON atoms (space_id, origin) WHERE origin IS NOT NULL;

-- From known_at on, the atom is known not to hold from valid_to on: by_seq began then in its place, or is itself if its
-- end was given with it.
CREATE TABLE atom_closings (
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

CREATE INDEX atom_closings_by_closer ON atom_closings (tenant_id, app_id, user_id, space_id, by_seq);

-- vector: little-endian half-precision numbers, made by embedder. numbers: the same for the server to search in spaces that
-- are too large to be searched in a process; pgvector's type is not used, so that it need not be installed.
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

-- Every name of an entity that stands for itself, folded.
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

ALTER TABLE spaces ENABLE ROW LEVEL SECURITY;
ALTER TABLE spaces FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON spaces USING (in_scope(tenant_id, app_id, user_id));
ALTER TABLE atoms ENABLE ROW LEVEL SECURITY;
ALTER TABLE atoms FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON atoms USING (in_scope(tenant_id, app_id, user_id));
ALTER TABLE atom_closings ENABLE ROW LEVEL SECURITY;
ALTER TABLE atom_closings FORCE ROW LEVEL SECURITY;
CREATE POLICY scope ON atom_closings USING (in_scope(tenant_id, app_id, user_id));
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
