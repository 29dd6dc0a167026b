"""The server of the documentation's screenshots: `tellback serve --agents tests.browser.showcase_server:install`.

Its model gives prepared answers that use recalled memories of the sample user.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from tellback import Agent, Tellback
from tellback import request as bound
from tellback.chat.model import ChatRequest, ModelBase
from tellback.demo import build_tables_agent
from tellback.types import ChatReply, ChatUsage, ReplyDelta, message_text, reply_deltas

WORK_QUESTION = "Where do I work now?"
DINNER_QUESTION = "My sister Ana comes for dinner on Friday. What should I cook?"
BOOKING_REQUEST = "A table for two on 2026-12-04"

_ANSWERS = {
    WORK_QUESTION: (
        "You work as a nurse at **Santa Maria** in Lisbon, on day shifts.",
        ("Santa Maria",),
        ChatUsage(input_tokens=486, output_tokens=23, cost_usd=0.0006),
    ),
    DINNER_QUESTION: (
        "Ana is allergic to nuts, and you eat vegetarian. Two ideas that work for both of you:\n\n"
        "- **Mushroom risotto** with lemon and parsley\n"
        "- **Pumpkin curry** with coconut milk and rice\n\n"
        "Both are ready in 40 minutes, so there is time after your day shift.",
        ("vegetarian", "allergic", "day shifts"),
        ChatUsage(input_tokens=561, output_tokens=78, cost_usd=0.0011),
    ),
}


class ShowcaseModel(ModelBase):
    """A model with prepared answers. It fails if a memory that an answer needs was not recalled."""

    provider = "example"
    model = "example-model"

    async def _complete(self, request: ChatRequest) -> ChatReply:
        text, fragments, usage = _ANSWERS[message_text(request.messages[-1])]
        context = bound.remembered()
        recalled = [] if context is None else [hit.atom.text for hit in context.hits]
        assert all(any(fragment in each for each in recalled) for fragment in fragments), recalled
        return ChatReply(text=text, stop_reason="end_turn", usage=usage)

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        reply = await self._complete(request)
        for delta in reply_deltas(reply, tuple(re.findall(r"\S*\s*", reply.text))):
            yield delta


def install(tb: Tellback) -> list[Agent]:
    """Create the demo agent without a model, and set the model of the chat."""
    agent = build_tables_agent(tb)
    tb._runtime.model = ShowcaseModel()
    return [agent]
