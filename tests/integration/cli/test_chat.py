"""`tellback chat` on a real terminal: typing, interrupting and resuming."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tellback import Tellback
from tests.integration.chat.providers.vendors import Anthropic
from tests.integration.cli.support import COMMAND, ENVIRONMENT
from tests.support.fake_http_server import Delay, FakeHttpServer, Reply, Request, sse_reply

OWN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes standard input the controlling terminal, which sends Ctrl-C, and executes the command."""


def answer_request(request: Request) -> Reply:
    """Answer with a story that stalls in the middle, and answer other messages immediately."""
    vendor = Anthropic()
    texts = str(request.body["messages"][-1])
    if "story" in texts and "How are you?" not in texts:  # the unanswered message is sent again with the next one
        return sse_reply(*vendor.text_chunks("Once upon ", "a time "), Delay(60))
    return sse_reply(*vendor.text_chunks("All is ", "well."), *vendor.final_chunks())


class Terminal:
    """A user at a terminal, who reads and types."""

    def __init__(self, process: asyncio.subprocess.Process, handle: int) -> None:
        self.process = process
        self._handle = handle
        self.shown = ""
        self._seen = 0

    async def wait_for(self, words: str) -> str:
        """Return the output since the last call, up to these words."""
        async with asyncio.timeout(50):
            while (position := self.shown.find(words, self._seen)) < 0:
                try:
                    data = await asyncio.to_thread(os.read, self._handle, 65_536)
                except OSError:  # the process has closed the terminal
                    data = b""
                assert data, f"the command exited before it printed {words!r}: {self.shown}"
                self.shown += data.decode(errors="replace")
        found = self.shown[self._seen : position + len(words)]
        self._seen = position + len(words)
        return found

    def type(self, text: str) -> None:
        os.write(self._handle, text.encode())

    async def wait_closed(self) -> int:
        """Return the exit code. Reads the remaining output, because the process blocks if nobody reads it."""
        reading = asyncio.create_task(self._rest())
        async with asyncio.timeout(50):
            code = await self.process.wait()
            await reading
        return code

    async def _rest(self) -> None:
        while True:
            try:
                data = await asyncio.to_thread(os.read, self._handle, 65_536)
            except OSError:
                return
            if not data:
                return
            self.shown += data.decode(errors="replace")


@asynccontextmanager
async def terminal(*arguments: str, **environment: str) -> AsyncIterator[Terminal]:
    parent_fd, child_fd = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWN_TERMINAL, *COMMAND, *arguments),
        stdin=child_fd,
        stdout=child_fd,
        stderr=child_fd,
        start_new_session=True,
        env={**ENVIRONMENT, "TERM": "xterm", "OLLAMA_HOST": "127.0.0.1:9", **environment},
    )
    os.close(child_fd)
    try:
        yield Terminal(process, parent_fd)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(parent_fd)


async def test_ctrl_c_stops_an_answer_and_quits_at_the_prompt(tmp_path: Path) -> None:
    url = str(tmp_path / "tellback.db")
    async with FakeHttpServer(answer_request) as wire:
        keys = {"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": wire.url}
        async with terminal("chat", "--url", url, "--user", "maya", **keys) as screen:
            assert "Chatting as maya with claude-sonnet-5." in await screen.wait_for("you> ")
            screen.type("Tell me a story.\n")
            await screen.wait_for("a time ")
            screen.type("\x03")
            assert "Answer stopped. Your message is stored; you can continue." in await screen.wait_for("you> ")
            screen.type("How are you?\n")
            assert "All is well." in await screen.wait_for("you> ")
            await asyncio.sleep(0.5)  # readline reacts to signals only a moment after it prints its prompt
            screen.type("\x03")
            assert await screen.wait_closed() == 130
            assert "Traceback" not in screen.shown
    async with Tellback(url, worker=False) as tb:
        maya = tb.user("maya")
        [conversation] = await maya.conversations.list()
        texts = [
            message.text for message in await maya.conversations.messages(conversation.id) if message.role == "user"
        ]
    assert texts == ["Tell me a story.", "How are you?"]


async def test_without_any_setup_messages_are_remembered(tmp_path: Path) -> None:
    url = str(tmp_path / "tellback.db")
    async with terminal("chat", "--url", url) as screen:
        assert "No model is set up" in await screen.wait_for("you> ")
        screen.type("I moved to Lisbon in March.\n")
        await screen.wait_for("you> ")
        screen.type("/close\n")
        assert "Your next message starts a new one." in await screen.wait_for("you> ")
        screen.type("Where did I move?\n")
        assert "Lisbon" in await screen.wait_for("you> ")
        screen.type("/why\n")
        assert "source conv_" in await screen.wait_for("you> ")
        screen.type("\x04")
        assert await screen.wait_closed() == 0
    async with terminal("chat", "--url", url) as screen:
        assert "Where did I move?" in await screen.wait_for("Type /help")


async def test_interrupting_a_single_answer_prints_no_error(tmp_path: Path) -> None:
    async with FakeHttpServer(answer_request) as wire:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "chat", "Tell me a story.", "--url", str(tmp_path / "tellback.db")),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**ENVIRONMENT, "ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": wire.url},
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(50):
                assert await process.stdout.readexactly(len("Once upon a time ")) == b"Once upon a time "
                process.send_signal(signal.SIGINT)
                _, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert (process.returncode, errors.decode()) == (130, "")
