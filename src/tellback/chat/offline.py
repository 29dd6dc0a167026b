"""`OfflineModel`: what answers where no model is set up. It quotes what is remembered, and says that it does."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tellback import request as bound
from tellback.chat.model import ChatRequest, ModelBase
from tellback.errors import ConfigurationError
from tellback.types import ChatReply, ChatUsage, Message, ReplyDelta, message_text, reply_deltas
from tellback.types.memory import TURN

if TYPE_CHECKING:
    from tellback.types.memory import Atom, RecallHit

OFFLINE = "offline"
"""The name of the model, also in what is stored: its answers are quotations, and no memories are made of them."""

MOST_QUOTED = 4
QUOTE_LENGTH = 400
ENOUGH = 0.5
"""How good a hit must be, measured by the best one, to be quoted beside it."""

SURE = 0.2
"""From which score on a hit is surely about what was said."""

NOTHING = "I remember nothing about that. No model is set up, so I can only repeat what I was told."
KEPT = "That is kept, and becomes a memory when this conversation is closed. No model is set up, so I cannot say more."
ALONE = "No model is set up, so I can only repeat what I was told, and nothing is kept here."
SET_UP = (
    "To get answers in words of its own, set a provider's key (such as ANTHROPIC_API_KEY or OPENAI_API_KEY), start"
    " Ollama, or name a GGUF file as the model."
)

FREE = ChatUsage(cost_usd=0.0, provider=OFFLINE, model=OFFLINE)

_SPEAKER = re.compile(r"^([^:\n]{1,60}): (?=\S)")
_WORD = re.compile(r"[^\W_]+")
_ASKED = tuple("?\uff1f\u061f\u055e\u037e")
"""Question marks: also full-width, Arabic, Armenian and Greek ones."""
_SAID = tuple(".!…\u3002\uff01")
_SENTENCE = re.compile(rf"(?<=[{re.escape(''.join(_ASKED + _SAID))}])\s*|\n+")
_BIDS = re.compile(r"\W*(?:tell|remind) me\b", re.IGNORECASE)
_OPENS = re.compile(
    r"\W*(?:(?:who|whom|what|when|where|which|why|how|whose)\b"
    r"|(?:do|does|did|is|are|was|were|am|can|could|should|would|will|have|has)\s+"
    r"(?:i|you|we|they|he|she|it|my|your|our|their|his|her|the|this|that|there|any\w*|some\w*)\b)",
    re.IGNORECASE,
)
_COMMON = {
    *("about", "could", "does", "have", "know", "like", "many", "much", "should", "some", "tell", "that", "them"),
    *("then", "there", "they", "this", "were", "what", "when", "where", "which", "whose", "will", "with", "would"),
    "your",
}


class OfflineModel(ModelBase):
    """Answers from memory alone, with no network and no key: honest about it, and never in words of its own.

    In a turn of a user it quotes what was recalled for the message, numbered and dated, and what the user said before
    in the same conversation. It calls no tools and fills in no schema, so that agents with routes need another model.

    >>> import asyncio
    >>> from tellback import Tellback
    >>> async def main():
    ...     async with Tellback(":memory:") as rc:  # no model: it answers
    ...         maya = rc.user("maya")
    ...         reply = await maya.chat("I moved to Lisbon in March.")
    ...         await maya.conversations.close(reply.conversation_id)
    ...         return (await maya.chat("Where did I move to in March?")).text
    >>> '[1] "I moved to Lisbon in March."' in asyncio.run(main())
    True
    """

    provider = OFFLINE

    def __init__(self, model: str = OFFLINE, **options: Any) -> None:
        if options:
            raise ConfigurationError(f"OfflineModel takes no options, not {', '.join(options)}.")
        self.model = model

    def __repr__(self) -> str:
        return "OfflineModel()"

    async def _complete(self, request: ChatRequest) -> ChatReply:
        return _answer(request)

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        reply = _answer(request)
        for delta in reply_deltas(reply, tuple(re.findall(r"\S*\s*", reply.text))):
            yield delta


def is_offline(model: Any) -> bool:
    """Whether that is no model but the one that answers in the place of one.

    >>> is_offline("offline"), is_offline(OfflineModel()), is_offline("gpt-5")
    (True, True, False)
    """
    return isinstance(model, OfflineModel) or (isinstance(model, str) and model.lower() == OFFLINE)


def _answer(request: ChatRequest) -> ChatReply:
    if request.output_schema is not None:
        raise ConfigurationError(f"No model is set up, and the offline one fills in no schema. {SET_UP}")
    said = [message for message in request.messages if message.role == "user"]
    text = message_text(said[-1]) if said else ""
    asks = any(mark in text for mark in _ASKED) or not _tells(text)
    hits = _recalled(asks)
    earlier = _earlier(text, said[:-1]) if asks else []
    parts = [_said_earlier(earlier)] if earlier else []
    if hits:
        parts.append(f"{_heading(hits[0].score)}\n" + "\n".join(_quotes(hit.atom for hit in hits)))
    if parts:
        parts.append("(No model is set up: this is quoted, not thought.)")
    else:
        parts.append(NOTHING if asks else ALONE if bound.current().conversation_id is None else KEPT)
    if not any(message.role == "assistant" for message in request.messages):
        parts.append(SET_UP)
    cited = [hit.atom.id for hit in hits]
    return ChatReply(text="\n\n".join(parts), stop_reason="end_turn", usage=FREE, raw={"cited": cited})


def _recalled(asks: bool) -> list[RecallHit]:
    """What is worth quoting: for a question what comes closest, and else only what is surely about the same."""
    context = bound.remembered()
    hits = [] if context is None else [hit for hit in context.hits if _tells(_unattributed(hit.atom)[1])]
    if not hits or (not asks and hits[0].score < SURE):
        return []
    close = [hit for hit in hits if hit.score >= ENOUGH * hits[0].score]
    return close[: MOST_QUOTED if hits[0].score >= SURE else 2]


def _heading(best: float) -> str:
    return "From memory, word for word:" if best >= SURE else "I am not sure that I know. What comes closest in memory:"


def _quotes(atoms: Iterable[Atom]) -> list[str]:
    lines = []
    for number, atom in enumerate(atoms, 1):
        who, text = _unattributed(atom)
        when = f"{atom.valid_from.day} {atom.valid_from:%B %Y}"
        lines.append(f'[{number}] "{_short(text)}" ({", ".join(filter(None, (who, when)))})')
    return lines


def _unattributed(atom: Atom) -> tuple[str, str]:
    """Who said it, where that is kept with it, and what was said."""
    speaker = _SPEAKER.match(atom.text) if atom.category == TURN else None
    if speaker is None:
        return "", atom.text
    return "you" if speaker[1] == "User" else speaker[1], atom.text[speaker.end() :]


def _tells(text: str) -> bool:
    """Whether it says anything: what is only asked does not, also where the question mark was left out."""
    told = [each for each in _SENTENCE.split(text) if each and not each.rstrip().endswith(_ASKED)]
    if not any(map(_WORD.search, told)):
        return not any(mark in text for mark in _ASKED)
    opens = _OPENS.match(told[0]) is not None and not text.rstrip().endswith(_SAID)
    return not opens and _BIDS.match(told[0]) is None


def _earlier(question: str, said: Sequence[Message]) -> list[str]:
    """What the user said in this conversation that shares a word with the question, the newest last."""
    wanted = _stems(question)
    texts = [message_text(message).strip() for message in said]
    return [text for text in texts if _tells(text) and wanted & _stems(text)][-2:]


def _said_earlier(texts: Sequence[str]) -> str:
    return "Earlier in this conversation you said: " + " ".join(f'"{_short(text)}"' for text in texts)


def _stems(text: str) -> frozenset[str]:
    return frozenset(word[:5] for word in _WORD.findall(text.lower()) if len(word) > 3 and word not in _COMMON)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= QUOTE_LENGTH else f"{text[:QUOTE_LENGTH].rstrip()} […]"
