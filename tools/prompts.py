"""Write the prompts on the page docs/explanation/prompts.md: the output of the program on this page.

Run `python tools/prompts.py`; a test fails when the page is out of date.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "prompts.md"
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r'^```text title="([^"]+)"\n.*?^```$', re.MULTILINE | re.DOTALL)


def fill_page(page: str) -> str:
    """Run the page's program, and return the page with its prompts."""
    program = PROGRAM.search(page)
    assert program is not None
    names: dict[str, Any] = {"__name__": "prompts_page"}
    exec(compile(program[1], str(PAGE), "exec", dont_inherit=True), names)
    prompts: dict[str, str] = names["prompts"]
    return BLOCK.sub(lambda block: f'```text title="{block[1]}"\n{prompts[block[1]]}\n```', page)


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text()))
