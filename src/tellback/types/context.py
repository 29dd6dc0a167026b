"""The working context: what a model is given before it answers."""

from __future__ import annotations

from dataclasses import dataclass

from tellback.types.memory import Atom, RecallHit
from tellback.types.messages import Message, message_text


@dataclass(frozen=True, slots=True)
class WorkingContext:
    """What a model should know before it answers, within a token budget. `str(context)` is the block.

    - `context_block` is the rendered template: a system prompt, or the beginning of one.
    - `messages` is the same as chat messages: a system message, then the kept turns with their tool calls and results.
    - `atoms_used` are the memories in it, the always-on ones first; `hits` are the recalled ones among them.
    - The budget holds for the block and for the messages. `tokens_estimated` counts the block, or the messages if the
      template is of that kind. `over_budget` says that the summary and the always-on memories alone are larger than the
      budget; there are then no turns and no hits.
    - `turns_used` and `turns_dropped` count the recent turns, `hits_dropped` the hits that had to go.
    - `recall_query` is what was recalled by, None if nothing was. `remembers` says that there is a summary or a memory
      in it.

    >>> str(WorkingContext("Today is Monday.", messages=(), atoms_used=(), tokens_estimated=4))
    'Today is Monday.'
    """

    context_block: str
    messages: tuple[Message, ...]
    atoms_used: tuple[Atom, ...]
    tokens_estimated: int
    over_budget: bool = False
    hits: tuple[RecallHit, ...] = ()
    turns_used: int = 0
    turns_dropped: int = 0
    hits_dropped: int = 0
    recall_query: str | None = None
    remembers: bool = False

    @property
    def system(self) -> str:
        """The block without the turns: for a system prompt, where these follow as messages."""
        return message_text(self.messages[0]) if self.messages and self.messages[0].role == "system" else ""

    def __str__(self) -> str:
        return self.context_block
