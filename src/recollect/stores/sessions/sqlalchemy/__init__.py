"""`SqlAlchemyAdapter`: sessions in a database of the user's own, by SQLAlchemy."""

from recollect.errors import MissingExtraError

try:
    from recollect.stores.sessions.sqlalchemy.adapter import SqlAlchemyAdapter
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("sqlalchemy", "greenlet"):
        raise
    raise MissingExtraError("sqlalchemy", "sqlalchemy", "The SQLAlchemy adapter") from error

__all__ = ["SqlAlchemyAdapter"]
