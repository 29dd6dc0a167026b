"""What every engine says about schema versions."""

from __future__ import annotations

from tellback.errors import SchemaVersionError


def newer_schema(place: str, found: int, known: int) -> SchemaVersionError:
    """The refusal to touch tables that a later release has changed."""
    return SchemaVersionError(
        f"{place} has schema version {found}, but this release knows versions up to {known}:"
        " a newer Tellback has migrated it. Upgrade this one, or open another database."
    )
