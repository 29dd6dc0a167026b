"""Session adapters for SQLite and PostgreSQL, without an ORM.

`adapter` chooses the backend: the tables of a Tellback store, or two tables of the adapter's own (`backend`)."""
