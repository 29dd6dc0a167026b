"""The types of the synchronous API and of the client, as seen by type checkers and editors."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools.sync_stubs import STUB, build_stub

import tellback
from tellback import Tellback, TellbackClient, sync
from tellback.agent import Capability, Guideline, Route, Term
from tellback.agent.definitions.guidelines import CapabilityFields, GuidelineFields, TermFields
from tellback.agent.definitions.route import RouteFields
from tellback.chat import (
    AnthropicModel,
    ChatOptions,
    GeminiModel,
    LocalModel,
    OllamaModel,
    OpenAIModel,
    OpenRouterModel,
    XaiModel,
)
from tellback.chat.model import ModelOptions, OpenModelOptions
from tellback.chat.options import ChatOptionsDict
from tellback.chat.providers.base import ProviderModel
from tellback.tools.mcp.server import McpOptionFields, McpOptions

ROOT = Path(__file__).parents[2]


def test_the_synchronous_stub_matches_the_handles() -> None:
    assert STUB.read_text() == build_stub(), "python tools/sync_stubs.py writes it again"


def test_the_package_contains_py_typed() -> None:
    assert (Path(tellback.__file__).parent / "py.typed").exists()


def test_every_class_of_the_stub_can_be_imported() -> None:
    assert set(re.findall(r"^class (Sync\w+)", STUB.read_text(), re.MULTILINE)) == set(sync.__all__)
    for name in sync.__all__:
        assert getattr(sync, name).__name__ == name
    with pytest.raises(AttributeError, match="SyncNobody"):
        sync.SyncNobody  # type: ignore[attr-defined]  # noqa: B018


def test_wrapped_handles_have_the_classes_of_the_stub() -> None:
    with Tellback(":memory:", worker=False) as tb:
        maya = tb.user("maya")
        assert isinstance(tb, sync.SyncTellback)
        assert isinstance(maya, sync.SyncUser)
        assert isinstance(maya.conversations, sync.SyncConversations)
        assert {"chat", "conversations", "memory"} <= set(dir(maya))
    with TellbackClient("http://127.0.0.1:9") as client:
        assert isinstance(client, sync.SyncTellbackClient)
        assert isinstance(client.user("maya").memory, sync.SyncRemoteMemory)


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        (ChatOptionsDict, ChatOptions),
        (TermFields, Term),
        (GuidelineFields, Guideline),
        (CapabilityFields, Capability),
        (McpOptionFields, McpOptions),
        (ModelOptions, ProviderModel.__init__),
        (RouteFields, Route.__init__),
    ],
)
def test_typed_dicts_match_the_arguments_they_describe(fields: Any, value: Any) -> None:
    annotations = dict(value.__annotations__)
    if not isinstance(value, type):  # a constructor, whose first argument is a name
        del annotations["model" if "model" in annotations else "title"], annotations["return"]
    assert {name: hint.__forward_arg__ for name, hint in fields.__annotations__.items()} == annotations


def test_open_model_accepts_the_options_of_the_models() -> None:
    classes = (AnthropicModel, GeminiModel, LocalModel, OllamaModel, OpenAIModel, OpenRouterModel, XaiModel)
    parameters = [each for kind in classes for each in inspect.signature(kind).parameters.values()]
    own = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert own | ModelOptions.__annotations__.keys() == OpenModelOptions.__annotations__.keys()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_mypy_accepts_correct_programs_and_reports_wrong_ones() -> None:
    """The programs assert types and mark each line that must be an error; a missing error fails as well."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "tests/typing"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (checked.stdout, checked.stderr, checked.returncode) == ("", "", 0)
