"""Session adapters for SQLite and PostgreSQL, without an ORM: on two tables of their own, or in a Tellback's store.

`tables` has the operations on two tables, which `sessions.sqlalchemy` uses too; `adapter` has the store's."""
