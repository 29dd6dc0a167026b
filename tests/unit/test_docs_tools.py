"""What makes docstrings fit for the site."""

from __future__ import annotations

import pytest
from tools.doctests import fence


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Add.", "Add."),
        ("Add.\n\n>>> 1 + 1\n2", "Add.\n\n```pycon\n>>> 1 + 1\n2\n```"),
        (">>> 1 + 1\n2\n\nThat is all.", "```pycon\n>>> 1 + 1\n2\n```\n\nThat is all."),
        (
            ">>> def f():\n...     pass\n\n>>> f()",
            "```pycon\n>>> def f():\n...     pass\n```\n\n```pycon\n>>> f()\n```",
        ),
    ],
)
def test_examples_in_docstrings_are_shown_as_code(written: str, shown: str) -> None:
    assert fence(written) == shown
