"""Session adapters for SQLite and PostgreSQL, without an ORM: on their own two tables, or in a Tellback's store.

`tables` has the operations on two tables, which `sessions.sqlalchemy` also uses; `adapter` has those on the store.
"""
