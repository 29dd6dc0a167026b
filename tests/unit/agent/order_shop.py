"""A shop agent for tests: it asks for an order, runs a tool with it, and reports the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tellback.agent import END_ROUTE, Agent, Route

ORDER = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "total": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["order"],
}


def build_order_agent(
    run: Any, *, then: str = "Tell the outcome", agent: Agent | None = None, **fields: Any
) -> tuple[Agent, Route]:
    """Build an agent that asks for an order, runs a tool with it, and reports the result."""
    agent = agent or Agent("Shop")
    route = agent.create_route(title="Order", gather_schema=ORDER)
    (
        route.initial_state.transition_to(chat_state="Ask which order", gather=["order"])
        .transition_to(tool_state=run, **fields)
        .transition_to(chat_state=then)
        .transition_to(state=END_ROUTE)
    )
    return agent, route


def build_order_finder(found: list[str], answer: Any = "shipped") -> Callable[[str], Any]:
    def find(order: str) -> Any:
        """Find an order."""
        found.append(order)
        return answer(order) if callable(answer) else answer

    return find
