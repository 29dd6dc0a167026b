"""`SqlAlchemyAdapter`: sessions in the user's own database, through SQLAlchemy."""

from tellback.errors import MissingExtraError

try:
    from tellback.sessions.sqlalchemy.adapter import SqlAlchemyAdapter
except ImportError as error:  # if greenlet is missing, SQLAlchemy raises one without a name
    if error.name is not None and error.name.partition(".")[0] not in ("sqlalchemy", "greenlet"):
        raise
    raise MissingExtraError("sqlalchemy", "sqlalchemy", "The SQLAlchemy adapter") from error

__all__ = ["SqlAlchemyAdapter"]
