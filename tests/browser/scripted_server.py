"""A scripted model and agents for a server: `tellback serve --agents tests.browser.scripted_server:install`.

The model follows keywords in the last message. The agent "clerk" has tools. Two agents have routes: one books flights,
and one has titles that would break a page that treated them as markup.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tellback import END_ROUTE, Agent, Tellback, tool
from tellback.chat.model import ChatRequest
from tellback.errors import ProviderAuthError
from tellback.testing import FlowModel, FunctionModel, calls, says
from tellback.testing.models import Step, stream_step
from tellback.types import ChatUsage, ReplyDelta, TextDelta, message_text
from tests.support.travel_agents import make_flight_agent

HOSTILE_TEXTS = (
    "<img src=x onerror=\"document.title='ran'\">",
    "<script>document.title='ran'</script>",
    "[click](javascript:document.title='ran')",
    '"]; click s0 "javascript:document.title=1" %%{init: {}}%%',
    "{{constructor.constructor('document.title=1')()}}",
    "\u202eright to left \u05e9\u05dc\u05d5\u05dd \U0001f9d1\u200d\U0001f680",
)
"""Texts that would run scripts on a page that treated them as markup."""
MARKDOWN_REPLY = """# Plan for <b>Lisbon</b>

1. **Pack** light
2. Take the *night* train
   - via [Madrid](https://example.com/madrid)
   - not via [here](javascript:document.title='ran')

```python
print("<script>document.title='ran'</script>")
```

Use `--fast` [7], and see https://example.com/help."""
USAGE = ChatUsage(input_tokens=120, output_tokens=34, total_tokens=154, cost_usd=0.0021)


async def _stream_reply(request: ChatRequest) -> AsyncIterator[ReplyDelta]:
    text = message_text(request.messages[-1])
    if "slowly" in text:
        for number in range(400):
            yield TextDelta(f"word{number} ")
            await asyncio.sleep(0.05)
    if "quickly" in text:
        for number in range(1_000):
            yield TextDelta(f"word{number} ")
            await asyncio.sleep(0.001)
    if "fail" in text:
        yield TextDelta("I was about to say")
        await asyncio.sleep(0.2)
        raise ProviderAuthError("Incorrect API key provided.", provider="openai", status=401)
    for delta in stream_step(_next_step(request)):
        yield delta


def _next_step(request: ChatRequest) -> Step:
    last_message = request.messages[-1]
    text = message_text(last_message)
    names = {each.name for each in request.tools}
    if last_message.role == "tool":
        return says(f"The tool gave: {text}", chunks=7, usage=USAGE)
    if "look" in text and "lookup" in names:
        return calls("lookup", saying="Let me look.", order=7)
    if "pay" in text and "pay" in names:
        return calls("pay", amount=12)
    if "marks" in text:
        return says(MARKDOWN_REPLY, chunks=5, usage=USAGE)
    thinking = "The user wants me to think." if "think" in text else ""
    return says(f"You said: {text}", chunks=5, usage=USAGE, thinking=thinking)


def lookup(order: int) -> str:
    """Look an order up."""
    return f"order {order} is on its way"


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def hostile_agent() -> Agent:
    """Create an agent whose titles and texts are all hostile."""
    agent = Agent("Mallory", goal=HOSTILE_TEXTS[0], description=HOSTILE_TEXTS[1], model=FlowModel())
    for number, title in enumerate(HOSTILE_TEXTS):
        schema = {"type": "object", "properties": {f"field{number}": {"type": "string"}}}
        route = agent.create_route(title, conditions=[HOSTILE_TEXTS[0], HOSTILE_TEXTS[3]], gather_schema=schema)
        state = route.initial_state.transition_to(chat_state=title, gather=[f"field{number}"])
        state.transition_to(state=END_ROUTE, condition=HOSTILE_TEXTS[3])
    return agent


def install(tb: Tellback) -> list[Agent]:
    """Set the scripted model, and return the agents to serve."""
    tb._runtime.model = FunctionModel(lambda request: _next_step(request), stream_fn=_stream_reply, model="scripted")
    tool_definitions = [{"type": "FUNCTION", "name": each, "description": f"Use {each}."} for each in ("lookup", "pay")]
    tb.register_agent({"name": "clerk", "systemPrompt": "Help.", "tools": tool_definitions}, [lookup, pay])
    return [make_flight_agent(model=FlowModel(reads={"destination": r"to ([A-Z]\w+)"}))[0], hostile_agent()]
