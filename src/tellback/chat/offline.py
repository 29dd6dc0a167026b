"""`OfflineModel`: answers by quoting memories when no model is set up."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Never

from tellback import request as bound
from tellback.chat.model import ChatRequest, ModelBase
from tellback.chat.registry import BuiltinProvider, FoundModel, Provider
from tellback.errors import ConfigurationError
from tellback.types import (
    ChatReply,
    ChatUsage,
    Message,
    ReplyDelta,
    message_text,
    remove_instructions,
    reply_deltas,
)
from tellback.types.memory import TURN_CATEGORY

if TYPE_CHECKING:
    from tellback.types.memory import Atom, RecallHit

OFFLINE = "offline"
"""The model's name, also in stored messages. Its answers are quotations, so they do not become memories."""

MAX_QUOTES = 4
MAX_QUOTE_CHARS = 400
MIN_RELATIVE_SCORE = 0.5
"""The smallest score of a quoted hit, as a fraction of the best hit's score."""

CONFIDENT_SCORE = 0.2
"""The smallest score of a hit that is certainly about the message."""

CONFIDENT_HEADING = "From your memory:"
UNSURE_HEADING = "I am not sure. The closest memories:"
NOTHING_REMEMBERED = "I found nothing about that in your memory."
STORED_FOR_MEMORY = (
    "Stored. Your message becomes a memory when this conversation is closed, for example when you start a new one."
)
NOT_STORED = "I can only quote memories, and messages are not stored here."
FIRST_ANSWER_NOTE = "No model is set up, so answers only quote your memory. `tellback doctor` shows how to set one up."
SETUP_HINT = (
    "To set up a model, set the environment variable of a provider's key (such as ANTHROPIC_API_KEY or OPENAI_API_KEY),"
    " start Ollama, or set TELLBACK_GGUF to the path of a GGUF model file."
)

NO_COST = ChatUsage(cost_usd=0.0, provider=OFFLINE, model=OFFLINE)

_SPEAKER_PREFIX = re.compile(r"^([^:\n]{1,60}): (?=\S)")
_WORD = re.compile(r"[^\W_]+")
_QUESTION_MARKS = tuple("?\uff1f\u061f\u055e\u037e")
"""Question marks: also full-width, Arabic, Armenian and Greek ones."""
_STATEMENT_MARKS = tuple(".!…\u3002\uff01")
_SENTENCE = re.compile(rf"(?<=[{re.escape(''.join(_QUESTION_MARKS + _STATEMENT_MARKS))}])\s*|\n+")
_REQUEST_OPENING = re.compile(r"\W*(?:tell|remind) me\b", re.IGNORECASE)
_QUESTION_OPENING = re.compile(
    r"\W*(?:(?:who|whom|what|when|where|which|why|how|whose)\b"
    r"|(?:do|does|did|is|are|was|were|am|can|could|should|would|will|have|has)\s+"
    r"(?:i|you|we|they|he|she|it|my|your|our|their|his|her|the|this|that|there|any\w*|some\w*)\b)",
    re.IGNORECASE,
)
_STOP_WORDS = {
    *("about", "could", "does", "have", "know", "like", "many", "much", "should", "some", "tell", "that", "them"),
    *("then", "there", "they", "this", "were", "what", "when", "where", "which", "whose", "will", "with", "would"),
    "your",
}


class OfflineModel(ModelBase):
    """A model that answers only with quotations from memory, without a network and without a key.

    In a user's turn it quotes the memories recalled for the message, numbered and dated, and the user's earlier
    messages in the conversation. It does not support tools or schemas, so agents with routes need another model.

    >>> import asyncio
    >>> from tellback import Tellback
    >>> async def main():
    ...     async with Tellback(":memory:") as tb:  # no model, so this one answers
    ...         maya = tb.user("maya")
    ...         reply = await maya.chat("I moved to Lisbon in March.")
    ...         await maya.conversations.close(reply.conversation_id)
    ...         return (await maya.chat("Where did I move to in March?")).text
    >>> '[1] "I moved to Lisbon in March."' in asyncio.run(main())
    True
    """

    provider = OFFLINE

    def __init__(self, model: str = OFFLINE, **options: Never) -> None:
        if options:
            raise ConfigurationError(f"OfflineModel accepts no options, got {', '.join(options)}.")
        self.model = model

    def __repr__(self) -> str:
        return "OfflineModel()"

    async def _complete(self, request: ChatRequest) -> ChatReply:
        return _build_reply(request)

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        reply = _build_reply(request)
        for delta in reply_deltas(reply, tuple(re.findall(r"\S*\s*", reply.text))):
            yield delta


def is_offline(model: Any) -> bool:
    """Whether this is the offline model or its name.

    >>> is_offline("offline"), is_offline(OfflineModel()), is_offline("gpt-5")
    (True, True, False)
    """
    return isinstance(model, OfflineModel) or (isinstance(model, str) and model.lower() == OFFLINE)


PROVIDER = BuiltinProvider(
    Provider.OFFLINE,
    "offline",
    is_offline,
    "offline",
    "tellback.chat.offline:OfflineModel",
    find=lambda env: FoundModel(OFFLINE, OFFLINE, True, "quotes memories; needs nothing"),
    vision=False,
    tool_choice=False,
)


def _build_reply(request: ChatRequest) -> ChatReply:
    if request.output_schema is not None:
        raise ConfigurationError(f"No model is set up, and the offline model does not support schemas. {SETUP_HINT}")
    user_messages = [message for message in remove_instructions(request.messages) if message.role == "user"]
    text = message_text(user_messages[-1]) if user_messages else ""
    is_question = any(mark in text for mark in _QUESTION_MARKS) or not _is_statement(text)
    hits = _select_hits(is_question)
    earlier = _find_earlier_messages(text, user_messages[:-1]) if is_question else []
    parts = [_format_earlier(earlier)] if earlier else []
    if hits:
        is_confident = hits[0].score >= CONFIDENT_SCORE
        quotes = [_format_quote(number, hit.atom) for number, hit in enumerate(hits, 1)]
        parts.append("\n".join([CONFIDENT_HEADING if is_confident else UNSURE_HEADING, *quotes]))
    if not parts and is_question:
        parts.append(NOTHING_REMEMBERED)
    elif not parts:
        parts.append(NOT_STORED if bound.current().conversation_id is None else STORED_FOR_MEMORY)
    if not any(message.role == "assistant" for message in request.messages):
        parts.append(FIRST_ANSWER_NOTE)
    cited = [hit.atom.id for hit in hits]
    return ChatReply(text="\n\n".join(parts), stop_reason="end_turn", usage=NO_COST, raw={"cited": cited})


def _select_hits(is_question: bool) -> list[RecallHit]:
    """Select the hits to quote: the closest ones for a question, only those with a confident score for a statement."""
    context = bound.remembered()
    hits = [] if context is None else [hit for hit in context.hits if _is_statement(_split_speaker(hit.atom)[1])]
    if not hits or (not is_question and hits[0].score < CONFIDENT_SCORE):
        return []
    strong_hits = [hit for hit in hits if hit.score >= MIN_RELATIVE_SCORE * hits[0].score]
    return strong_hits[: MAX_QUOTES if hits[0].score >= CONFIDENT_SCORE else 2]


def _format_quote(number: int, atom: Atom) -> str:
    speaker, text = _split_speaker(atom)
    when = f"{atom.valid_from.day} {atom.valid_from:%B %Y}"
    return f'[{number}] "{_truncate_quote(text)}" ({", ".join(filter(None, (speaker, when)))})'


def _split_speaker(atom: Atom) -> tuple[str, str]:
    """Split a remembered message into its speaker (or '') and its text."""
    speaker = _SPEAKER_PREFIX.match(atom.text) if atom.category == TURN_CATEGORY else None
    if speaker is None:
        return "", atom.text
    return "you" if speaker[1] == "User" else speaker[1], atom.text[speaker.end() :]


def _is_statement(text: str) -> bool:
    """Whether the text states something and is not only a question, with or without a question mark."""
    statements = [each for each in _SENTENCE.split(text) if each and not each.rstrip().endswith(_QUESTION_MARKS)]
    if not any(map(_WORD.search, statements)):
        return not any(mark in text for mark in _QUESTION_MARKS)
    opens_as_question = _QUESTION_OPENING.match(statements[0]) is not None and not text.rstrip().endswith(
        _STATEMENT_MARKS
    )
    return not opens_as_question and _REQUEST_OPENING.match(statements[0]) is None


def _find_earlier_messages(question: str, messages: Sequence[Message]) -> list[str]:
    """Return the user's last two statements in this conversation that share a word with the question."""
    question_stems = _word_stems(question)
    texts = [message_text(message).strip() for message in messages]
    return [text for text in texts if _is_statement(text) and question_stems & _word_stems(text)][-2:]


def _format_earlier(texts: Sequence[str]) -> str:
    return "Earlier in this conversation you said: " + " ".join(f'"{_truncate_quote(text)}"' for text in texts)


def _word_stems(text: str) -> frozenset[str]:
    return frozenset(word[:5] for word in _WORD.findall(text.lower()) if len(word) > 3 and word not in _STOP_WORDS)


def _truncate_quote(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS].rstrip()} […]"
