"""Helpers for the examples with agents: choose a model, and print a dialogue."""

import asyncio
import sys
from collections.abc import Coroutine, Iterable
from typing import Any

from first_turn import choose_model
from tellback import Agent, Response, SessionState, TellbackError
from tellback.testing import FlowModel, FunctionModel


def with_available_model(agent: Agent, fallback_model: FlowModel) -> Agent:
    """Return the agent with the available model, or with the stand-in."""
    model = choose_model()
    return agent.with_model(fallback_model if isinstance(model, FunctionModel) else model)


async def converse(agent: Agent, messages: Iterable[str], session: SessionState | None = None) -> Response:
    """Send the messages one after the other, and print the responses."""
    history: list[dict[str, str]] = []
    for text in messages:
        history.append({"role": "user", "content": text})
        print(f"> {text}")
        response = await agent.respond(history, session)
        session = response.session
        history.append({"role": "assistant", "content": response.message})
        show(response)
    return response


def show(response: Response) -> None:
    """Print a reply, the state and the tools that ran."""
    print(response.message)
    route = "no route" if response.route is None else response.route.title
    state = "completed" if response.completed else response.state and response.state.description
    tool_text = "".join(f"; ran {call.name}" for call in response.tool_calls)
    pending_text = "".join(f"; {call.name} needs approval" for call in response.pending)
    print(f"  [{route}: {state}{tool_text}{pending_text}; model calls: {response.trace.model_calls}]")


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run an example; print errors as one sentence."""
    try:
        asyncio.run(main)
    except TellbackError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")
