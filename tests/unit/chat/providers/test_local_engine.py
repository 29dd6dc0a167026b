"""The engine of local models: order, concurrency and cancellation, with a fake llama.cpp."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytest

from tellback import LocalModel, StreamStop, TextDelta, open_model
from tellback.chat import Provider, detect_provider
from tellback.chat.providers.local import model as local_model
from tellback.errors import (
    ConfigurationError,
    MissingExtraError,
    ProviderConnectionError,
    ProviderError,
    ProviderOverloadedError,
    ProviderRequestError,
    ProviderTimeoutError,
)
from tellback.testing import ScriptedModel

SECONDS = 10


def chunk(content: str = "", finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]}


class Llama:
    """A fake that answers with the numbers up to `length`, can be paused, and records its requests and its end."""

    def __init__(self) -> None:
        self.loads = 0
        self.length = 50
        self.prompts: list[str] = []
        self.chunk_counts: list[int] = []
        self.go = threading.Event()
        self.go.set()
        self.asking = threading.Event()
        self.fails: Exception | None = None
        self.at_once = 0
        self.most_at_once = 0

    def load(self, settings: local_model.EngineSettings) -> Llama:
        self.loads += 1
        return self

    def handle_chat_completions(self, body: dict[str, Any], take: Callable[[Any], bool]) -> None:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            self._answer(body, take)
        finally:
            self.at_once -= 1

    def _answer(self, body: dict[str, Any], take: Callable[[Any], bool]) -> None:
        self.prompts.append(body["messages"][-1]["content"])
        self.chunk_counts.append(0)
        self.asking.set()
        if self.fails is not None:
            raise self.fails
        for number in range(self.length):
            assert self.go.wait(SECONDS)
            if take(chunk(f"{number} ")):
                return
            self.chunk_counts[-1] += 1
        take(chunk(finish="stop"))


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> Iterator[Llama]:
    fake = Llama()
    monkeypatch.setattr(local_model, "_load", fake.load)
    monkeypatch.setattr(local_model, "_engines", WeakValueDictionary())
    yield fake
    fake.go.set()


@pytest.fixture
def model(llama: Llama) -> LocalModel:
    return LocalModel("tiny.gguf")


NUMBERS = "".join(f"{number} " for number in range(50))


async def test_deltas_keep_their_order_and_are_not_lost(model: LocalModel) -> None:
    async def read() -> str:
        return "".join([delta.text async for delta in model.stream("Count.") if isinstance(delta, TextDelta)])

    assert await asyncio.gather(*(read() for _ in range(5))) == [NUMBERS] * 5


async def test_requests_are_answered_one_at_a_time_in_order(model: LocalModel, llama: Llama) -> None:
    questions = [str(number) for number in range(8)]
    others = [LocalModel("tiny.gguf"), LocalModel(Path("tiny.gguf"))]
    replies = await asyncio.gather(*((model, *others)[int(each) % 3].complete(each) for each in questions))
    assert [reply.text for reply in replies] == [NUMBERS] * 8
    assert llama.prompts == questions
    assert (llama.loads, llama.most_at_once) == (1, 1)


async def test_the_event_loop_is_not_blocked_while_the_model_runs(model: LocalModel, llama: Llama) -> None:
    llama.go.clear()
    working = asyncio.ensure_future(model.complete("Count."))
    await asyncio.to_thread(llama.asking.wait, SECONDS)
    await asyncio.sleep(0)
    assert not working.done()
    llama.go.set()
    assert (await working).text == NUMBERS


async def test_closing_the_iterator_stops_the_generation(model: LocalModel, llama: Llama) -> None:
    llama.length = 1_000_000
    stream: Any = model.stream("Count.")
    await anext(stream)
    await stream.aclose()
    llama.length = 1
    async with asyncio.timeout(SECONDS):
        assert (await model.complete("Again.")).text == "0 "
    assert llama.chunk_counts[0] < 1_000_000


@pytest.mark.parametrize("streaming", [False, True])
async def test_cancelling_the_task_stops_the_generation(model: LocalModel, llama: Llama, streaming: bool) -> None:
    llama.length = 1_000_000

    async def read() -> None:
        async for _ in model.stream("Count."):
            pass

    task = asyncio.ensure_future(read() if streaming else model.complete("Count."))
    await asyncio.to_thread(llama.asking.wait, SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    llama.length = 1
    async with asyncio.timeout(SECONDS):
        await model.complete("Again.")
    assert llama.chunk_counts[0] < 1_000_000


async def test_a_request_that_is_cancelled_while_waiting_never_starts(model: LocalModel, llama: Llama) -> None:
    llama.go.clear()
    first, second, third = (asyncio.ensure_future(model.complete(name)) for name in ("first", "second", "third"))
    await asyncio.to_thread(llama.asking.wait, SECONDS)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    llama.go.set()
    await asyncio.gather(first, third)
    assert llama.prompts == ["first", "third"]


async def test_silence_times_out_but_waiting_for_other_requests_does_not(llama: Llama) -> None:
    model = LocalModel("tiny.gguf", timeout=0.2)
    patient_model = LocalModel("tiny.gguf", timeout=60)
    llama.go.clear()
    first = asyncio.ensure_future(patient_model.complete("first"))
    await asyncio.to_thread(llama.asking.wait, SECONDS)
    second = asyncio.ensure_future(model.complete("second"))
    await asyncio.sleep(0.4)
    assert not second.done()
    llama.go.set()
    assert (await first).text == (await second).text == NUMBERS
    llama.go.clear()
    with pytest.raises(ProviderTimeoutError, match=r"0\.2 seconds"):
        await model.complete("third")


async def test_closing_a_model_cancels_running_and_waiting_requests(model: LocalModel, llama: Llama) -> None:
    llama.go.clear()
    running, waiting = (asyncio.ensure_future(model.complete(name)) for name in ("running", "waiting"))
    await asyncio.to_thread(llama.asking.wait, SECONDS)
    await model.aclose()
    llama.go.set()
    async with asyncio.timeout(SECONDS):
        for task in (running, waiting):
            with pytest.raises(ProviderConnectionError, match="closed"):
                await task
    assert llama.prompts == ["running"]
    assert (await model.complete("Again.")).text == NUMBERS


async def test_closing_a_model_ends_its_streams_with_an_error(model: LocalModel, llama: Llama) -> None:
    llama.length = 1_000_000
    stream: Any = model.stream("Count.")
    await anext(stream)
    await model.aclose()
    with pytest.raises(ProviderConnectionError):
        [delta async for delta in stream]


async def test_a_file_is_released_when_its_last_model_is_closed(llama: Llama) -> None:
    one, other = LocalModel("tiny.gguf"), LocalModel("tiny.gguf")
    for model in (one, other):
        await model.complete("Count.")
    await one.aclose()
    gc.collect()
    assert len(local_model._engines) == 1
    await other.aclose()
    gc.collect()
    assert len(local_model._engines) == 0
    await one.complete("Count.")
    assert llama.loads == 2


async def test_a_file_can_be_loaded_before_the_first_request(model: LocalModel, llama: Llama) -> None:
    await asyncio.gather(model.load(), model.load())
    assert (llama.loads, llama.prompts) == (1, [])
    await model.complete("Count.")
    assert llama.loads == 1
    await model.aclose()
    await model.load()
    assert llama.loads == 2
    await model.aclose()
    gc.collect()
    assert len(local_model._engines) == 0


async def test_other_settings_create_another_engine(llama: Llama) -> None:
    models = [LocalModel("tiny.gguf", context=context) for context in (512, 1_024, 512)]
    for model in models:
        await model.complete("Count.")
    assert llama.loads == 2


async def test_a_forked_process_loads_the_file_itself(
    model: LocalModel, llama: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_model, "_abandoned_engines", [])
    await model.complete("Count.")
    monkeypatch.setattr("os.getpid", lambda: -1)
    local_model._after_fork()
    assert (await model.complete("Count.")).text == NUMBERS
    assert llama.loads == 2
    assert len(local_model._abandoned_engines) == 1


def test_one_model_serves_one_event_loop_after_another(llama: Llama) -> None:
    model = LocalModel("tiny.gguf")
    for _ in range(3):
        assert asyncio.run(model.complete("Count.")).text == NUMBERS
    assert llama.loads == 1


def test_a_closed_event_loop_stops_the_generation(llama: Llama) -> None:
    llama.length = 1_000_000
    model = LocalModel("tiny.gguf")

    async def leave() -> None:
        stream: Any = model.stream("Count.")
        await anext(stream)

    asyncio.run(leave())
    llama.length = 1
    assert asyncio.run(asyncio.wait_for(model.complete("Again."), SECONDS)).text == "0 "


@pytest.mark.parametrize(
    ("thrown", "raised"),
    [(ValueError("no such role"), ProviderRequestError), (RuntimeError("broken"), ProviderOverloadedError)],
)
async def test_exceptions_of_llama_become_provider_errors(
    model: LocalModel, llama: Llama, thrown: Exception, raised: type[ProviderError]
) -> None:
    llama.fails = thrown
    for call in (model.complete("Hi"), anext(aiter(model.stream("Hi")))):
        with pytest.raises(raised, match=str(thrown)) as caught:
            await call
        assert (caught.value.provider, caught.value.model) == ("local", "tiny.gguf")


async def test_a_failure_is_followed_by_the_backup_model(llama: Llama) -> None:
    llama.fails = ValueError("no such role")
    model = LocalModel("tiny.gguf", backup_models=["other.gguf", ScriptedModel(["Hello!"])])
    assert (await model.complete("Hi")).text == "Hello!"
    assert llama.loads == 2


async def test_tool_choice_must_be_a_tool_of_the_request(model: LocalModel) -> None:
    with pytest.raises(ProviderRequestError, match="'fly' is not a tool of the request; its tools are: none"):
        await model.complete("Hi", tool_choice="fly")


async def test_the_last_delta_has_the_whole_reply(model: LocalModel) -> None:
    deltas = [delta async for delta in model.stream("Count.")]
    last = deltas[-1]
    assert isinstance(last, StreamStop)
    assert last.reply is not None
    assert (last.reply.text, last.reason) == (NUMBERS, "end_turn")


@pytest.mark.parametrize("options", [{"context": 0}, {"threads": 0}, {"timeout": 0}, {"retries": -1}])
def test_invalid_settings_raise_configuration_error(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        LocalModel("tiny.gguf", **options)


async def test_a_missing_file_raises_configuration_error(tmp_path: Path) -> None:
    model = LocalModel(tmp_path / "none.gguf")
    for call in (model.complete("Hi"), model.load()):
        with pytest.raises(ConfigurationError, match=r"There is no model file .*none\.gguf"):
            await call


async def test_a_folder_raises_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        await LocalModel(tmp_path).complete("Hi")


async def test_a_file_of_another_format_raises_configuration_error(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"<html>Not found</html>")
    with pytest.raises(ConfigurationError, match="is not a GGUF file"):
        await LocalModel(file).complete("Hi")


async def test_the_error_for_a_missing_extra_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtraError, match=r"tellback\[local\]"):
        await LocalModel(file).complete("Hi")


@pytest.mark.parametrize("name", ["models/tiny.gguf", "local/tiny.gguf", "qwen/Tiny.GGUF", "/models/gpt-oss.gguf"])
def test_a_path_can_be_a_model_name(name: str) -> None:
    model = open_model(name, context=512)
    assert isinstance(model, LocalModel)
    assert (detect_provider(name), model.model, model.context) == (Provider.LOCAL, name, 512)


async def test_the_prefix_local_is_removed_from_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []

    def load(settings: local_model.EngineSettings) -> Llama:
        seen.append(settings.path)
        return Llama()

    monkeypatch.setattr(local_model, "_load", load)
    monkeypatch.chdir(tmp_path)
    await LocalModel("local/models/a.gguf").complete("Hi")
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "b.gguf").touch()
    await LocalModel("local/b.gguf").complete("Hi")
    assert [path.relative_to(Path.cwd()) for path in seen] == [Path("models/a.gguf"), Path("local/b.gguf")]
