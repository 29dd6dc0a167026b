"""Sessions in tables of their own: what the adapters for SQLite and PostgreSQL share."""
