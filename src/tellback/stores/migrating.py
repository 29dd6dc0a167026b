"""What every engine says about schema versions."""

from __future__ import annotations

from tellback.errors import SchemaVersionError


def newer_schema_error(location: str, found: int, supported: int) -> SchemaVersionError:
    """The refusal to touch tables that a later release has changed."""
    return SchemaVersionError(
        f"{location} has schema version {found}, but this release knows versions up to {supported}:"
        " a newer Tellback has migrated it. Upgrade this one, or open another database."
    )
