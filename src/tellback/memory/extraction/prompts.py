"""The extraction prompts: files with a version in their name, built in or in a folder of the user's;
and the JSON schema of the answers."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from tellback.errors import ConfigurationError
from tellback.tools.schema import strip_titles

EXTRACTION, RECONCILE = "extraction", "reconcile"
RECONCILE_VERSION = "v1"

_VERSION = re.compile(r"[A-Za-z0-9._-]+\Z")
_FILE = re.compile(rf"{EXTRACTION}-([A-Za-z0-9._-]+)\.txt\Z")
_QUOTE_FIELD = "`quote`"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is told to do."""

    version: str
    text: str

    @property
    def wants_quotes(self) -> bool:
        """Whether every fact has to carry the user's own words: so it is if the prompt names the field `quote`."""
        return _QUOTE_FIELD in self.text


class Prompts:
    """The prompts there are: those in a folder of yours, then ours.

    A version is a file: `extraction-v3.txt` in the folder is the version "v3", and one that is named like ours takes
    its place. A prompt that names the field `quote` in backticks has the user's words checked, as our "v2" does.

    >>> Prompts().versions()
    ('v1', 'v2')
    """

    def __init__(self, folder: str | PathLike[str] | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None and not self._folder.is_dir():
            raise ConfigurationError(f"prompts={str(folder)!r} is not a folder: make it, or pass another one.")

    def __repr__(self) -> str:
        return f"Prompts({'' if self._folder is None else repr(str(self._folder))})"

    def versions(self) -> tuple[str, ...]:
        """The versions of the extraction prompt."""
        names = [*_built_in_names()]
        if self._folder is not None:
            names.extend(path.name for path in self._folder.iterdir())
        return tuple(sorted({found[1] for name in names if (found := _FILE.match(name))}))

    def extraction(self, version: str) -> Prompt:
        """The extraction prompt of that version; raises `ConfigurationError`, which names the ones there are."""
        text = self._find(EXTRACTION, version)
        if text is None:
            known = ", ".join(self.versions())
            raise ConfigurationError(
                f"There is no extraction prompt of version {version!r:.80}. There are: {known}."
                f" Add a file {EXTRACTION}-<version>.txt to the folder that is passed as prompts=... ."
            )
        return Prompt(version, text)

    def reconcile(self) -> Prompt:
        """The prompt that has facts judged against what is known."""
        text = self._find(RECONCILE, RECONCILE_VERSION)
        assert text is not None, "the wheel carries it"
        return Prompt(RECONCILE_VERSION, text)

    def _find(self, name: str, version: str) -> str | None:
        if not isinstance(version, str) or not _VERSION.match(version):
            return None
        file = f"{name}-{version}.txt"
        if self._folder is not None and (path := self._folder / file).is_file():
            return _read_prompt(path)
        return _read_built_in(file) if file in _built_in_names() else None


def as_prompts(value: Prompts | str | PathLike[str] | None) -> Prompts:
    """Prompts, from themselves or from a folder."""
    return value if isinstance(value, Prompts) else Prompts(value)


def _read_prompt(path: Path) -> str:
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the prompt {str(path)!r} cannot be read: {error}.") from error
    if not text:
        raise ConfigurationError(f"the prompt {str(path)!r} is empty: write it, or remove the file.")
    return text


@cache
def _built_in_names() -> frozenset[str]:
    return frozenset(file.name for file in files("tellback.memory.extraction").joinpath("prompts").iterdir())


@cache
def _read_built_in(file: str) -> str:
    return files("tellback.memory.extraction").joinpath("prompts", file).read_text("utf-8").strip()


MAX_ENUM_IDS = 400
"""A longer list of ids is not spelt out in the schema: providers limit how many words it may hold."""


def _upper(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


KindField = Annotated[Literal["FACT", "RULE", "INTENTION", "EPISODE", "PREFERENCE"], BeforeValidator(_upper)]
EntityTypeField = Annotated[
    Literal["PERSON", "ORGANIZATION", "PLACE", "OBJECT", "CONCEPT", "EVENT", "AGREEMENT"], BeforeValidator(_upper)
]
ChangeField = Annotated[Literal["none", "changed", "corrected"], BeforeValidator(_lower)]
VerdictField = Annotated[Literal["same", "replaces", "corrects", "new"], BeforeValidator(_lower)]


class FactOutput(BaseModel):
    """A fact as a model gives it."""

    messages: list[str] = Field(min_length=1, description="ids of the messages it rests on")
    quote: str | None = Field(None, description="the user's exact words")
    text: str = Field(description="one self-contained sentence")
    kind: KindField
    category: str = Field("", description="one or two plain words")
    subject: str | None = Field(None, description='whom or what it is about, such as "user"')
    attribute: str | None = Field(None, description='what of it, such as "home city"')
    value: str | None = Field(None, description='such as "Lisbon"')
    single: bool = Field(False, description="only one such value at a time")
    change: ChangeField = "none"
    since: str | None = Field(None, description="date, month or year: 2026-03-04, 2026-03, 2026")
    until: str | None = Field(None, description="date, month or year")
    importance: int = Field(3, ge=1, le=5)
    confidence: float = Field(0.8, ge=0, le=1)
    entities: list[str] = Field([], description="names of entities")


class EntityOutput(BaseModel):
    """An entity as a model gives it."""

    name: str
    type: EntityTypeField
    aliases: list[str] = []
    description: str | None = None


class ExtractionOutput(BaseModel):
    """What a model found in a window."""

    facts: list[FactOutput]
    entities: list[EntityOutput] = []


class DecisionOutput(BaseModel):
    """What a fact is to the candidate of that number."""

    fact: int
    verdict: VerdictField
    candidate: int | None = Field(None, description="null if new")


class DecisionsOutput(BaseModel):
    """A judgement for each fact."""

    decisions: list[DecisionOutput]


def extraction_schema(ids: Sequence[str], *, quotes: bool) -> dict[str, Any]:
    """The schema of `ExtractionOutput` for a window: only its own messages can be cited."""
    schema = deepcopy(_strict_schema(ExtractionOutput))
    properties = schema["properties"]["facts"]["items"]["properties"]
    if quotes:
        properties["quote"] = {"type": "string", "description": properties["quote"]["description"]}
    else:
        del properties["quote"]
        schema["properties"]["facts"]["items"]["required"].remove("quote")
    if len(ids) <= MAX_ENUM_IDS:
        properties["messages"]["items"]["enum"] = list(ids)
    return schema


def decisions_schema(facts: int, candidates: int) -> dict[str, Any]:
    """The schema of `DecisionsOutput` for so many facts, none of which has more candidates than that."""
    schema = deepcopy(_strict_schema(DecisionsOutput))
    decisions = schema["properties"]["decisions"]
    decisions.update(minItems=facts, maxItems=facts)
    properties = decisions["items"]["properties"]
    properties["fact"].update(minimum=1, maximum=facts)
    properties["candidate"]["anyOf"][0].update(minimum=1, maximum=candidates)
    return schema


@functools.cache
def _strict_schema(model: type[BaseModel]) -> dict[str, Any]:
    """A model's schema as providers can hold a model to it: no references, every property required, none open."""
    schema = strip_titles(model.model_json_schema())
    strict: dict[str, Any] = _inline_references(schema, schema.pop("$defs", {}))
    return strict


def _inline_references(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline_references(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline_references(definitions[node["$ref"].removeprefix("#/$defs/")], definitions)
    closed = {
        key: _inline_references(value, definitions)
        for key, value in node.items()
        if key not in ("default", "properties")
    }
    if node.get("type") == "object":
        closed.pop("description", None)  # the docstring, which is for us
        closed["properties"] = {
            name: _inline_references(value, definitions) for name, value in node["properties"].items()
        }
        closed["required"] = list(closed["properties"])
        closed["additionalProperties"] = False
    return closed
