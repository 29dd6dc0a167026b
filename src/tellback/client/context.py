"""`user.working_context` of a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tellback.client.handle import RemoteHandle
from tellback.client.transport import build_path
from tellback.client.values import encode_arguments, encode_datetime
from tellback.types.context import WorkingContext
from tellback.wire.context import WorkingContextWire


class RemoteWorkingContexts(RemoteHandle):
    """Builds the working context of a user's conversations, on a server."""

    async def build(
        self,
        conversation_id: str | None,
        memory_space_id: str | None = None,
        recall_query: str | None = None,
        recent_turns: int | None = 10,
        recall_limit: int | None = 8,
        token_budget: int | None = 8_000,
        include_rolling_summary: bool | None = True,
        always_on_category_names: Sequence[str] | None = (),
        template_id: str | None = "default",
        *,
        now: datetime | str | None = None,
        min_score: float | None = None,
    ) -> WorkingContext:
        """Put together what a model should know before it answers in this conversation, or with None, in a new one."""
        body = encode_arguments(
            conversation_id=conversation_id,
            memory_space_id=memory_space_id,
            recall_query=recall_query,
            recent_turns=recent_turns,
            recall_limit=recall_limit,
            token_budget=token_budget,
            include_rolling_summary=include_rolling_summary,
            always_on_category_names=always_on_category_names or None,
            template_id=template_id,
            now=encode_datetime("now", now),
            min_score=min_score,
        )
        path = build_path("ai-working-context")
        payload = await self._transport.call("POST", path, user=self._user, body=body, is_read=True)
        context: WorkingContext = WorkingContextWire.model_validate(payload).value()
        return context
