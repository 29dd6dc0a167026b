"""A first turn with a tool, with the model that is available.

    python examples/first_turn.py [QUESTION]

With a provider's key in the environment that provider answers. Otherwise the file in TELLBACK_GGUF or an Ollama on this
machine does. Without any of them a scripted stand-in answers.
"""

import asyncio
import sys
from collections.abc import Callable

from tellback import ChatOptions, ChatRequest, Model, TellbackError, TextDelta, chat, run_loop_stream, tool
from tellback.testing import FunctionModel, Step, calls, says


@tool
def weather(city: str) -> str:
    """Return the current weather in a city."""
    return f"18 degrees and clear in {city}"


def fallback_reply(request: ChatRequest) -> Step:
    """Call the tool first, then answer with its result."""
    last = request.messages[-1]
    if last.role == "tool":
        return says(f"No coat needed: it is {last.content}.")
    return calls("weather", city="Lisbon", saying="Let me look. ")


def choose_model(fallback: Callable[[ChatRequest], Step] = fallback_reply) -> str | Model:
    """Return the name of the available model, or the stand-in."""
    chosen = chat.choose_model()
    if not chosen.is_offline:
        print(f"[{chosen.name}: {chosen.why}]")
        return chosen.name
    print("[a scripted stand-in answers: set a provider's key, such as ANTHROPIC_API_KEY, for a real model]")
    return FunctionModel(fallback, model="stand-in")


def show(delta: object) -> None:
    """Print text when it arrives."""
    if isinstance(delta, TextDelta):
        print(delta.text, end="", flush=True)


async def main() -> None:
    """Send one question."""
    question = " ".join(sys.argv[1:]) or "Do I need a coat in Lisbon today?"
    opts = ChatOptions(model=choose_model(), system="Be brief. Use the weather tool.", tools=[weather])
    print(f"> {question}")
    result = await run_loop_stream(opts, question, show)
    tool_runs = ", ".join(f"{r.name}: {r.content}" for step in result.steps for r in step.tool_results) or "none"
    tokens = result.usage.total_tokens or "not counted"
    print(f"\n[tools run: {tool_runs}; model calls: {len(result.steps)}; tokens: {tokens}]")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except TellbackError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")
