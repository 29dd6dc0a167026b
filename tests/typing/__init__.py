"""Programs that type checkers read: `tests/unit/test_types.py` runs mypy on them, and nothing runs them."""
