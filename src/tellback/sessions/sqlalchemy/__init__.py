"""`SqlAlchemyAdapter`: sessions in a database of the user's own, through SQLAlchemy."""

from tellback.errors import MissingExtraError

try:
    from tellback.sessions.sqlalchemy.adapter import SqlAlchemyAdapter
except ImportError as error:  # SQLAlchemy itself raises one without a name if greenlet is missing
    if error.name is not None and error.name.partition(".")[0] not in ("sqlalchemy", "greenlet"):
        raise
    raise MissingExtraError("sqlalchemy", "sqlalchemy", "The SQLAlchemy adapter") from error

__all__ = ["SqlAlchemyAdapter"]
