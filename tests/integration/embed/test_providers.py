"""Embedding with the providers' APIs and SDKs, against a loopback server with their wire formats."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pytest

from tellback.embed import (
    CompatibleEmbedder,
    Embedder,
    GeminiEmbedder,
    OllamaEmbedder,
    OpenAIEmbedder,
    OpenRouterEmbedder,
)
from tellback.embed.providers import ProviderEmbedder
from tellback.errors import (
    ConfigurationError,
    EmbeddingError,
    InvalidArgumentError,
    MissingKeyError,
    ProviderAuthError,
    ProviderError,
    ProviderRateLimitError,
    ProviderTimeoutError,
)
from tests.support.fake_http_server import Delay, DropConnection, FakeHttpServer, Reply, Request, json_reply

Rows = Sequence[Any]
SIZE = 4


def vector_of(text: str) -> list[float]:
    """Return a vector that depends on the whole text and does not have length 1."""
    seed = sum(position * byte for position, byte in enumerate(text.encode(), 1))
    values: list[float] = np.random.default_rng(seed).normal(size=SIZE).astype(np.float32).tolist()
    return values


def unit(row: Any) -> Any:
    return np.asarray(row) / np.linalg.norm(row)


class Vendor(Protocol):
    def embedder(self, wire: FakeHttpServer, **options: Any) -> ProviderEmbedder: ...
    def rows(self, rows: Rows) -> Reply: ...
    def sent(self, body: Any) -> list[str]: ...
    def failure(self, status: int, **headers: str) -> Reply: ...


class OpenAI:
    def embedder(self, wire: FakeHttpServer, **options: Any) -> ProviderEmbedder:
        options = {"dimensions": SIZE, "api_key": "key", "base_url": wire.url, **options}
        return OpenAIEmbedder("text-embedding-3-small", **options)

    def rows(self, rows: Rows) -> Reply:
        data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
        return json_reply({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1}})

    def sent(self, body: Any) -> list[str]:
        texts: list[str] = body["input"]
        return texts

    def failure(self, status: int, **headers: str) -> Reply:
        return json_reply({"error": {"message": "no", "type": "some_error"}}, status, **headers)


class Gemini:
    def embedder(self, wire: FakeHttpServer, **options: Any) -> ProviderEmbedder:
        options = {"dimensions": SIZE, "api_key": "key", "base_url": wire.url, **options}
        return GeminiEmbedder("gemini-embedding-001", **options)

    def rows(self, rows: Rows) -> Reply:
        return json_reply({"embeddings": [{"values": row} for row in rows]})

    def sent(self, body: Any) -> list[str]:
        return [request["content"]["parts"][0]["text"] for request in body["requests"]]

    def failure(self, status: int, **headers: str) -> Reply:
        return json_reply({"error": {"code": status, "message": "no", "status": "BAD"}}, status, **headers)


@pytest.fixture(params=[OpenAI(), Gemini()], ids=["openai", "gemini"])
def vendor(request: pytest.FixtureRequest) -> Vendor:
    found: Vendor = request.param
    return found


def answer_with(vendor: Vendor, before_answer: Callable[[int], None] | None = None) -> Callable[[Request], Reply]:
    request_count = 0

    def respond(request: Request) -> Reply:
        nonlocal request_count
        request_count += 1
        if before_answer is not None:
            before_answer(request_count)
        return vendor.rows([vector_of(text) for text in vendor.sent(request.body)])

    return respond


async def test_each_text_gets_its_own_normalised_vector(vendor: Vendor) -> None:
    texts = ["I keep bees.", "", "The roof leaks.", "   ", "I keep bees."]
    async with FakeHttpServer(answer_with(vendor)) as wire:
        embedder = vendor.embedder(wire)
        assert isinstance(embedder, Embedder)
        rows = await embedder.embed(texts)
        await embedder.close()
        await embedder.close()
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_allclose(row, unit(vector_of(text)) if text.strip() else np.zeros(SIZE), atol=1e-6)
    assert vendor.sent(wire.last.body) == ["I keep bees.", "The roof leaks."]
    assert len(wire.requests) == 1


@pytest.mark.parametrize("texts", [[], ["", " \n"]])
async def test_blank_and_repeated_texts_are_not_sent(vendor: Vendor, wire: FakeHttpServer, texts: list[str]) -> None:
    rows = await vendor.embedder(wire).embed(texts)
    assert rows.shape == (len(texts), SIZE)
    assert not rows.any()
    assert wire.requests == []


async def test_many_texts_are_sent_in_concurrent_requests_and_keep_their_order(vendor: Vendor) -> None:
    texts = [f"note {n}" for n in range(5000)]
    async with FakeHttpServer(answer_with(vendor)) as wire:
        embedder = vendor.embedder(wire)
        rows = await embedder.embed(texts)
        await embedder.close()
    np.testing.assert_allclose(rows, np.stack([unit(vector_of(text)) for text in texts]), atol=1e-5)
    sizes = [len(vendor.sent(request.body)) for request in wire.requests]
    assert sum(sizes) == 5000
    assert max(sizes) == embedder.limits.max_texts
    assert wire.connections <= 4


async def test_no_request_exceeds_the_limit_in_bytes(vendor: Vendor) -> None:
    texts = [f"{n} " + "ü" * 1500 for n in range(300)]
    async with FakeHttpServer(answer_with(vendor)) as wire:
        embedder = vendor.embedder(wire)
        await embedder.embed(texts)
        await embedder.close()
    for request in wire.requests:
        assert sum(len(text.encode()) for text in vendor.sent(request.body)) <= embedder.limits.max_bytes


@pytest.mark.parametrize("long", ["The ferry leaves at nine. " * 2000, "海" * 20_000, "x" * 50_000])
async def test_a_text_that_is_too_long_gets_the_mean_of_its_pieces(vendor: Vendor, long: str) -> None:
    async with FakeHttpServer(answer_with(vendor)) as wire:
        embedder = vendor.embedder(wire)
        short, row = await embedder.embed(["short", long])
        await embedder.close()
    parts = [text for request in wire.requests for text in vendor.sent(request.body) if text != "short"]
    assert all(len(part.encode()) <= embedder.limits.max_text_bytes for part in parts)
    counts = {part: long.count(part) for part in parts}
    assert len("".join(parts)) <= len(long)
    assert all(counts.values())
    assert np.linalg.norm(row) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(short, unit(vector_of("short")), atol=1e-6)


async def test_unpaired_surrogates_are_sent_as_replacement_characters(vendor: Vendor) -> None:
    async with FakeHttpServer(answer_with(vendor)) as wire:
        embedder = vendor.embedder(wire)
        await embedder.embed(["a\ud800b"])
        await embedder.close()
    assert vendor.sent(wire.last.body) == ["a\ufffdb"]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([[1.0] * SIZE], "1 vectors for 2 texts"),
        ([[1.0] * SIZE] * 3, "3 vectors for 2 texts"),
        ([[1.0] * SIZE, [1.0] * (SIZE - 1)], "unequal lengths"),
        ([[1.0] * SIZE, [float("nan")] * SIZE], "not finite"),
        ([[1.0] * SIZE, [float("inf")] * SIZE], "not finite"),
        ([[1.0] * 7] * 2, "dimensions=7"),
        ([[], []], "shape"),
        ([[1.0] * SIZE, None], "unequal lengths"),
    ],
)
async def test_a_response_without_one_valid_vector_per_text_raises_embedding_error(
    vendor: Vendor, wire: FakeHttpServer, rows: Rows, problem: str
) -> None:
    wire.always_reply_with(vendor.rows(rows))
    embedder = vendor.embedder(wire, retries=0)
    with pytest.raises(EmbeddingError, match=problem):
        await embedder.embed(["one", "two"])
    await embedder.close()


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b'"text"', b"<html>", b'{"data": 3, "embeddings": 3}', b""])
async def test_a_response_of_another_shape_raises_embedding_error(
    vendor: Vendor, wire: FakeHttpServer, body: bytes
) -> None:
    wire.always_reply_with(Reply(200, {"content-type": "application/json"}, (body,)))
    embedder = vendor.embedder(wire, retries=0)
    with pytest.raises(EmbeddingError):
        await embedder.embed(["one", "two"])
    await embedder.close()


async def test_a_failed_request_is_retried_after_the_requested_delay(
    vendor: Vendor, wire: FakeHttpServer, recorded_backoffs: list[float]
) -> None:
    wire.reply_with(vendor.failure(429, retry_after="7"), vendor.failure(503), vendor.rows([vector_of("one")]))
    embedder = vendor.embedder(wire)
    rows = await embedder.embed(["one"])
    await embedder.close()
    np.testing.assert_allclose(rows[0], unit(vector_of("one")), atol=1e-6)
    assert len(wire.requests) == 3
    assert recorded_backoffs[0] >= 7
    assert recorded_backoffs[1] < 7


async def test_after_the_last_retry_the_provider_error_is_the_cause(
    vendor: Vendor, wire: FakeHttpServer, recorded_backoffs: list[float]
) -> None:
    wire.always_reply_with(vendor.failure(429))
    embedder = vendor.embedder(wire, retries=2)
    with pytest.raises(EmbeddingError) as caught:
        await embedder.embed(["one"])
    await embedder.close()
    assert isinstance(caught.value.__cause__, ProviderRateLimitError)
    assert len(caught.value.__cause__.attempts) == 3
    assert caught.value.retryable
    assert len(recorded_backoffs) == 2


async def test_a_request_with_a_wrong_key_is_not_retried(
    vendor: Vendor, wire: FakeHttpServer, recorded_backoffs: list[float]
) -> None:
    wire.always_reply_with(vendor.failure(401))
    embedder = vendor.embedder(wire)
    with pytest.raises(EmbeddingError, match="API key") as caught:
        await embedder.embed(["one"])
    await embedder.close()
    assert isinstance(caught.value.__cause__, ProviderAuthError)
    assert not caught.value.retryable
    assert len(wire.requests) == 1


async def test_one_failed_request_fails_the_whole_call(vendor: Vendor, recorded_backoffs: list[float]) -> None:
    def respond(request: Request) -> Reply:
        texts = vendor.sent(request.body)
        return vendor.failure(400) if "note 150" in texts else vendor.rows([vector_of(text) for text in texts])

    async with FakeHttpServer(respond) as wire:
        embedder = vendor.embedder(wire)
        with pytest.raises(EmbeddingError) as caught:
            await embedder.embed([f"note {n}" for n in range(400)])
        await embedder.close()
    assert isinstance(caught.value.__cause__, ProviderError)


async def test_a_silent_server_causes_a_timeout(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.reply_with(Reply(200, {"content-type": "application/json"}, (b" ", Delay(30))))
    embedder = vendor.embedder(wire, timeout=0.2, retries=0)
    with pytest.raises(EmbeddingError) as caught:
        await embedder.embed(["one"])
    await embedder.close()
    assert isinstance(caught.value.__cause__, ProviderTimeoutError)
    assert caught.value.retryable


async def test_a_broken_connection_is_retried(
    vendor: Vendor, wire: FakeHttpServer, recorded_backoffs: list[float]
) -> None:
    wire.reply_with(Reply(200, {}, (b'{"da', DropConnection())), vendor.rows([vector_of("one")]))
    embedder = vendor.embedder(wire)
    assert (await embedder.embed(["one"])).shape == (1, SIZE)
    await embedder.close()


async def test_cancelling_the_call_cancels_its_requests(vendor: Vendor, wire: FakeHttpServer) -> None:
    wire.always_reply_with(Reply(200, {}, (Delay(30),)))
    embedder = vendor.embedder(wire)
    task = asyncio.create_task(embedder.embed([f"note {n}" for n in range(250)]))
    await wire.request_received.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(wire.client_left.wait(), 5)
    await embedder.close()


def test_one_embedder_serves_several_event_loops(vendor: Vendor) -> None:
    embedders: list[ProviderEmbedder] = []

    async def once() -> None:
        async with FakeHttpServer(answer_with(vendor)) as wire:
            if not embedders:
                embedders.append(vendor.embedder(wire))
            embedders[0]._model._base_url = wire.url
            assert (await embedders[0].embed(["one"])).shape == (1, SIZE)
            await embedders[0].close()

    asyncio.run(once())
    asyncio.run(once())


async def test_anything_but_a_list_of_texts_is_rejected(vendor: Vendor, wire: FakeHttpServer) -> None:
    for wrong in ("one text", [1], [None]):
        with pytest.raises(InvalidArgumentError):
            await vendor.embedder(wire).embed(wrong)  # type: ignore[arg-type]
    assert wire.requests == []


async def test_the_error_for_a_missing_key_contains_its_variable() -> None:
    for embedder, variable in ((OpenAIEmbedder(), "OPENAI_API_KEY"), (GeminiEmbedder(), "GEMINI_API_KEY")):
        with pytest.raises(MissingKeyError, match=variable):
            await embedder.embed(["one"])


# OpenAI.


async def test_openai_requests_base64_and_dimensions_only_if_set(wire: FakeHttpServer) -> None:
    full_vector = np.arange(1536, dtype=np.float32)
    wire.always_reply_with(OpenAI().rows([base64.b64encode(full_vector.astype("<f4").tobytes()).decode()]))
    embedder = OpenAIEmbedder(api_key="secret", base_url=wire.url, config={"user": "u1"})
    rows = await embedder.embed(["one"])
    np.testing.assert_allclose(rows[0], unit(full_vector), atol=1e-6)
    assert wire.last.body == {
        "model": "text-embedding-3-small",
        "input": ["one"],
        "encoding_format": "base64",
        "user": "u1",
    }
    assert (wire.last.method, wire.last.path) == ("POST", "/embeddings")
    assert wire.last.headers["authorization"] == "Bearer secret"
    await embedder.close()

    short = OpenAIEmbedder(api_key="secret", base_url=wire.url, dimensions=256)
    with pytest.raises(EmbeddingError, match="1536 dimensions"):
        await short.embed(["one"])
    assert wire.last.body["dimensions"] == 256
    await short.close()


async def test_openai_vectors_are_sorted_by_index(wire: FakeHttpServer) -> None:
    data = [{"index": index, "embedding": vector_of(text)} for index, text in [(1, "two"), (2, "three"), (0, "one")]]
    wire.reply_with(json_reply({"data": data}))
    embedder = OpenAI().embedder(wire)
    rows = await embedder.embed(["one", "two", "three"])
    np.testing.assert_allclose(rows, np.stack([unit(vector_of(text)) for text in ("one", "two", "three")]), atol=1e-6)
    await embedder.close()


@pytest.mark.parametrize("numbers", [[0, 0, 0], [None, None, None]])
async def test_vectors_without_an_index_keep_their_order(wire: FakeHttpServer, numbers: list[Any]) -> None:
    texts = ["one", "two", "three"]
    data = [{"index": number, "embedding": vector_of(text)} for number, text in zip(numbers, texts, strict=True)]
    wire.reply_with(json_reply({"data": data}))
    embedder = OpenAI().embedder(wire)
    np.testing.assert_allclose(await embedder.embed(texts), [unit(vector_of(text)) for text in texts], atol=1e-6)
    await embedder.close()


@pytest.mark.parametrize("numbers", [[0, 0, 1], [0, 1, 3], [-1, 0, 1], ["a", "b", "c"]])
async def test_vectors_with_invalid_indexes_raise_embedding_error(wire: FakeHttpServer, numbers: list[Any]) -> None:
    wire.reply_with(json_reply({"data": [{"index": number, "embedding": [1.0] * SIZE} for number in numbers]}))
    embedder = OpenAI().embedder(wire, retries=0)
    with pytest.raises(EmbeddingError, match="indices"):
        await embedder.embed(["one", "two", "three"])
    await embedder.close()


@pytest.mark.parametrize("sent", ["!!!", "AAA=", "QUJD", 7, {"a": 1}])
async def test_a_vector_of_another_type_raises_embedding_error(wire: FakeHttpServer, sent: Any) -> None:
    wire.reply_with(OpenAI().rows([sent]))
    embedder = OpenAI().embedder(wire, retries=0)
    with pytest.raises(EmbeddingError):
        await embedder.embed(["one"])
    await embedder.close()


async def test_a_client_that_is_passed_in_is_used_and_not_closed(wire: FakeHttpServer) -> None:
    import openai

    wire.reply_with(OpenAI().rows([vector_of("one")]))
    async with openai.AsyncOpenAI(api_key="mine", base_url=f"{wire.url}/gate") as client:
        embedder = OpenAIEmbedder(client=client, dimensions=SIZE)
        await embedder.embed(["one"])
        await embedder.close()
        assert not client.is_closed()
    assert wire.last.path == "/gate/embeddings"
    assert wire.last.headers["authorization"] == "Bearer mine"


# Hosts with OpenAI's API.


async def test_requests_to_compatible_servers_have_float_encoding_and_no_dimensions(wire: FakeHttpServer) -> None:
    wire.reply_with(OpenAI().rows([vector_of("one")]))
    embedder = CompatibleEmbedder("my-model", base_url=wire.url, dimensions=SIZE, provider="Rack 7")
    assert embedder.name == "Rack 7/my-model-4"
    await embedder.embed(["one"])
    assert wire.last.body == {"model": "my-model", "input": ["one"], "encoding_format": "float"}
    wire.reply_with(OpenAI().failure(404))
    with pytest.raises(EmbeddingError, match="Rack 7"):
        await embedder.embed(["two"])
    await embedder.close()


async def test_ollama_uses_the_host_variable(wire: FakeHttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    wire.reply_with(OpenAI().rows([[1.0] * 768]))
    monkeypatch.setenv("OLLAMA_HOST", wire.url)
    embedder = OllamaEmbedder("nomic-embed-text:latest")
    assert embedder.name == "ollama/nomic-embed-text:latest-768"
    await embedder.embed(["one"])
    assert wire.last.path == "/v1/embeddings"
    await embedder.close()


async def test_openrouter_receives_the_vendor_name_and_its_own_key(
    wire: FakeHttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.reply_with(OpenAI().rows([[1.0] * 512]))
    monkeypatch.setenv("OPENROUTER_API_KEY", "router")
    embedder = OpenRouterEmbedder("openai/text-embedding-3-large", base_url=wire.url, dimensions=512)
    assert embedder.name == "openrouter/openai/text-embedding-3-large-512"
    await embedder.embed(["one"])
    assert wire.last.body["model"] == "openai/text-embedding-3-large"
    assert wire.last.body["dimensions"] == 512
    assert wire.last.headers["authorization"] == "Bearer router"
    await embedder.close()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: OpenAIEmbedder("new-model"), "dimensions="),
        (lambda: OllamaEmbedder("new-model"), "dimensions="),
        (lambda: OpenAIEmbedder("text-embedding-ada-002", dimensions=100), "1536"),
        (lambda: OpenAIEmbedder("text-embedding-3-small", dimensions=4000), "at most 1536"),
        (lambda: OpenAIEmbedder(dimensions=0), "above 0"),
        (lambda: OpenAIEmbedder(dimensions=-1), "above 0"),
        (lambda: OpenAIEmbedder(dimensions=2.5), "above 0"),  # type: ignore[arg-type]
        (lambda: OpenAIEmbedder(retries=-1), "retries"),
        (lambda: OpenAIEmbedder(""), "name"),
        (lambda: CompatibleEmbedder("bge-m3"), "base_url"),
    ],
)
def test_invalid_arguments_raise_configuration_error(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        make()


# Gemini.


def gemini_request(text: str, **config: Any) -> Mapping[str, Any]:
    content = {"parts": [{"text": text}], "role": "user"}
    return {"model": "models/gemini-embedding-001", "content": content, **config}


async def test_gemini_requests_distinguish_questions_from_searched_texts(wire: FakeHttpServer) -> None:
    wire.always_reply_with(Gemini().rows([[1.0] * 3072] * 2))
    embedder = GeminiEmbedder("models/gemini-embedding-001", api_key="secret", base_url=wire.url)
    assert embedder.name == "gemini/gemini-embedding-001-3072"
    await embedder.embed(["one", "two"])
    assert wire.last.path.endswith("/models/gemini-embedding-001:batchEmbedContents")
    assert wire.last.headers["x-goog-api-key"] == "secret"
    assert wire.last.body["requests"] == [
        gemini_request("one", taskType="RETRIEVAL_DOCUMENT"),
        gemini_request("two", taskType="RETRIEVAL_DOCUMENT"),
    ]
    await embedder.embed(["one", "two"], query=True)
    assert {request["taskType"] for request in wire.last.body["requests"]} == {"RETRIEVAL_QUERY"}
    await embedder.close()


async def test_gemini_requests_contain_dimensions_and_configuration(wire: FakeHttpServer) -> None:
    wire.reply_with(Gemini().rows([[1.0] * 768]))
    embedder = GeminiEmbedder(
        api_key="secret", base_url=wire.url, dimensions=768, config={"task_type": "SEMANTIC_SIMILARITY"}
    )
    await embedder.embed(["one"], query=True)
    assert wire.last.body["requests"] == [
        gemini_request("one", taskType="SEMANTIC_SIMILARITY", outputDimensionality=768)
    ]
    await embedder.close()


async def test_the_second_gemini_model_gets_the_task_as_text(
    wire: FakeHttpServer,
) -> None:
    wire.always_reply_with(Gemini().rows([[1.0] * 3072] * 2))
    embedder = GeminiEmbedder("gemini-embedding-2", api_key="secret", base_url=wire.url)
    await embedder.embed(["one", "two"])
    assert Gemini().sent(wire.last.body) == ["title: none | text: one", "title: none | text: two"]
    assert "taskType" not in json.dumps(wire.last.body)
    await embedder.embed(["one", "two"], query=True)
    assert Gemini().sent(wire.last.body)[0] == "task: search result | query: one"
    await embedder.close()


async def test_an_unknown_gemini_setting_raises_configuration_error(wire: FakeHttpServer) -> None:
    embedder = GeminiEmbedder(api_key="secret", base_url=wire.url, config={"temperature": 1})
    with pytest.raises(ConfigurationError, match="temperature"):
        await embedder.embed(["one"])
    await embedder.close()


async def test_the_delay_in_a_gemini_error_is_respected(wire: FakeHttpServer, recorded_backoffs: list[float]) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "11s"}]
    error = {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED", "details": details}
    wire.reply_with(json_reply({"error": error}, 429), Gemini().rows([vector_of("one")]))
    embedder = Gemini().embedder(wire)
    await embedder.embed(["one"])
    assert recorded_backoffs[0] >= 11
    await embedder.close()


async def test_google_cloud_requests_contain_one_text_each() -> None:
    class Models:
        request_count: list[list[str]] = []  # noqa: RUF012

        async def embed_content(self, *, model: str, contents: list[Any], config: Any) -> Any:
            from google.genai import types

            texts = [content.parts[0].text for content in contents]
            self.request_count.append(texts)
            return types.EmbedContentResponse(
                embeddings=[types.ContentEmbedding(values=vector_of(text)) for text in texts]
            )

    class Client:
        vertexai = True
        models = Models()

    embedder = GeminiEmbedder(client=Client(), dimensions=SIZE)
    rows = await embedder.embed(["one", "two"])
    np.testing.assert_allclose(rows[1], unit(vector_of("two")), atol=1e-6)
    assert Models.request_count == [["one"], ["two"]]
