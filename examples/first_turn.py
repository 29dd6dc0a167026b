"""A first turn with a tool, on whatever model is at hand.

With a provider's key in the environment (see MODELS) that provider answers. Without one, a small stand-in does, and
says so.
"""

import asyncio
import os
import sys

from recollect import ChatOptions, ChatRequest, Model, RecollectError, TextDelta, run_loop_stream, tool
from recollect.testing import FunctionModel, Step, calls, says

MODELS = {
    "ANTHROPIC_API_KEY": "claude-sonnet-5",
    "OPENAI_API_KEY": "gpt-5",
    "GEMINI_API_KEY": "gemini-2.5-flash",
    "OPENROUTER_API_KEY": "openai/gpt-5",
    "XAI_API_KEY": "grok-4",
}


@tool
def weather(city: str) -> str:
    """The weather in a city, now."""
    return f"18 degrees and clear in {city}"


def stand_in(request: ChatRequest) -> Step:
    """Look first, then answer with what was found."""
    last = request.messages[-1]
    if last.role == "tool":
        return says(f"No coat needed: it is {last.content}.")
    return calls("weather", city="Lisbon", saying="Let me look. ")


def choose_model() -> str | Model:
    """The first provider with a key, or the stand-in."""
    for variable, model in MODELS.items():
        if os.environ.get(variable):
            print(f"[{model}, by {variable}]")
            return model
    print(f"[a scripted stand-in answers: set one of {', '.join(MODELS)} for a real model]")
    return FunctionModel(stand_in, model="stand-in")


def show(delta: object) -> None:
    """Print text as it comes."""
    if isinstance(delta, TextDelta):
        print(delta.text, end="", flush=True)


async def main() -> None:
    """Ask one question."""
    question = " ".join(sys.argv[1:]) or "Do I need a coat in Lisbon today?"
    opts = ChatOptions(model=choose_model(), system="Be brief. Use the weather tool.", tools=[weather])
    print(f"> {question}")
    result = await run_loop_stream(opts, question, show)
    ran = ", ".join(f"{r.name}: {r.content}" for step in result.steps for r in step.tool_results) or "none"
    tokens = result.usage.total_tokens or "not counted"
    print(f"\n[tools run: {ran}; model calls: {len(result.steps)}; tokens: {tokens}]")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except RecollectError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")
