"""Programs for type checkers: `tests/unit/test_types.py` runs mypy on them; they are never executed."""
