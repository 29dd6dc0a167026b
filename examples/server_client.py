"""Run a server, and use it with the Python client.

    python examples/server_client.py

The server uses a free port and stores its data in memory. Two companies each have a key. Acme's app chats as its user
Maya and follows the event feed until her message is remembered. The other company also has a user Maya, who
cannot see this conversation. With a provider's key in the environment that provider answers; without one, a scripted
stand-in does.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import uvicorn

from first_turn import choose_model
from tellback import ChatRequest, NotFoundError, Tellback, TellbackClient, TellbackError, TextDelta, message_text
from tellback.client import RemoteUser
from tellback.server import create_app
from tellback.testing import FunctionModel, Step, says
from tellback.turn import TurnResult

STATEMENT, QUESTION = "I'm Maya. I moved to Lisbon, and I'm vegetarian now.", "Where should I eat tonight?"


def fallback_reply(request: ChatRequest) -> Step:
    """Answer like a model, with the memories in the prompt."""
    if "eat" not in message_text(request.messages[-1]):
        return says("Noted.")
    return says("Try Ao 26: it is vegetarian." if "vegetarian" in (request.system or "") else "What do you like?")


@asynccontextmanager
async def run_server(tb: Tellback) -> AsyncIterator[str]:
    """Run a server and yield its URL. In production, use `tellback serve`."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(tb, opens=False), log_level="warning", ws="none"))
    server_task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await server_task


async def chat(user: RemoteUser, text: str, namespace: str) -> str:
    """Send a message, print the streamed reply, and return the conversation's id."""
    print(f"> {text}")
    reply = None
    async for item in user.chat_stream(text, namespace):
        if isinstance(item, TextDelta):
            print(item.text, end="", flush=True)
        elif isinstance(item, TurnResult):  # the last item
            reply = item
    print()
    assert reply is not None
    for atom in reply.atoms_used:
        print(f"  remembered from {atom.source_conversation_id}: {atom.text}")
    return str(reply.conversation_id)


async def main() -> None:
    """Run one server for two companies."""
    model = choose_model()
    # The stand-in cannot extract facts, so messages are remembered verbatim.
    extractor = "verbatim" if isinstance(model, FunctionModel) else None
    if isinstance(model, FunctionModel):
        model = FunctionModel(fallback_reply, model="stand-in")

    async with Tellback(":memory:", model=model, extractor=extractor) as tb, run_server(tb) as url:
        acme = await tb.keys.create("app", name="acme's web site", tenant_id="acme")
        other = await tb.keys.create("app", name="another company's", tenant_id="globex")

        async with TellbackClient(url, acme.secret) as client:
            maya = client.user("maya")
            conversation_id = await chat(maya, STATEMENT, "chat")
            await maya.conversations.close(conversation_id)
            async with aclosing(client.events.subscribe(user_id="maya")) as events:
                async for event in events:
                    print(f"  [{event.type}]")
                    if event.type in ("extraction.completed", "extraction.failed"):
                        break
            await chat(maya, QUESTION, "dinner")

        async with TellbackClient(url, other.secret) as client:
            maya = client.user("maya")
            print(f"[another tenant's Maya has {len(await maya.conversations.list())} conversations]")
            try:
                await maya.conversations.messages(conversation_id)
            except NotFoundError as error:
                print(f"[{type(error).__name__}: {error}]")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except TellbackError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")
