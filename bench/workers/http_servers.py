"""One uvicorn worker that runs one contender, for bench/server.py: `python http_servers.py NAME PORT FILE EVENTS`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

TENANT = "bench"


class MessageIn(BaseModel):
    """The message in a request."""

    content: str
    key: str | None = None


class MessageOut(BaseModel):
    """The message in a response."""

    id: str
    conversation: str
    seq: int
    content: list[dict[str, Any]]
    created: datetime


def fastapi_echo() -> Any:
    """Build the minimal FastAPI application: it reads a message as a model and returns a model."""
    app = FastAPI()

    @app.post("/echo/{id}", status_code=201)
    async def echo(id: str, message: MessageIn) -> MessageOut:
        blocks = [{"type": "text", "text": message.content}]
        return MessageOut(id="msg_1", conversation=id, seq=1, content=blocks, created=datetime.now())

    return app


def starlette_sse() -> Any:
    """Build the minimal Starlette application: it yields events in their final form."""

    async def stream(request: Request) -> StreamingResponse:
        count, data = int(request.query_params["count"]), request.query_params["data"]

        async def events() -> AsyncIterator[str]:
            for number in range(count):
                yield f'id: {number}\nevent: text\ndata: {{"text":"{data}"}}\n\n'

        return StreamingResponse(events(), media_type="text/event-stream")

    return Starlette(routes=[Route("/stream", stream)])


async def serve_tellback(port: int, file: str, events: int) -> None:
    """Serve Tellback on a SQLite file like `tellback serve`: guard, limits, logs, metrics, jobs and embedder.

    The limits count but are never reached; the JSON log is discarded. The user's message sets the number of deltas.
    `events` is the number of events in the log.
    """
    from tellback import Tellback
    from tellback.server import create_app
    from tellback.server.operations.http_server import Server, bind_socket
    from tellback.server.operations.logs import log_to_stderr
    from tellback.server.settings import ServeOptions
    from tellback.types import ChatReply, StreamStop, TextDelta

    class CountingModel:
        name = model = "counting"
        provider = "bench"

        async def complete(self, *_: Any, **__: Any) -> ChatReply:
            return ChatReply(text="")

        async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
            count = int(str(messages[-1].content))
            for _ in range(count):
                yield TextDelta("word ")
            yield StreamStop("end_turn", reply=ChatReply(text="word " * count))

    options = ServeOptions(url=file, port=port, rate_limit=10**9, concurrency=10**6)
    async with Tellback(file, model=CountingModel()) as tb:
        await tb.warm_up()
        key = await tb.keys.create("app", tenant_id=TENANT)
        conversations = tb.user("maya", TENANT).conversations
        conversation, message = await conversations.create("bench"), {"role": "user", "content": "Where is my refund?"}
        for start in range(0, events, 500):
            await conversations.append_messages(conversation.id, [message] * min(500, events - start))
        print(key.secret, conversation.id, flush=True)
        with bind_socket(options.host, port) as listener, open(os.devnull, "w") as devnull:  # noqa: ASYNC230
            log_to_stderr("json").setStream(devnull)
            await Server(create_app(tb, options, opens=False), options).serve([listener])


async def serve_app(app: Any, port: int) -> None:
    """Run an application on uvicorn, without logs."""
    config = uvicorn.Config(app, host="127.0.0.1", port=port, access_log=False, log_level="warning", lifespan="auto")
    await uvicorn.Server(config).serve()


def main() -> None:
    name, port = sys.argv[1], int(sys.argv[2])
    apps = {"fastapi": fastapi_echo, "starlette": starlette_sse}
    ours = name == "tellback"
    coroutine = serve_tellback(port, sys.argv[3], int(sys.argv[4])) if ours else serve_app(apps[name](), port)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(coroutine)


if __name__ == "__main__":
    main()
