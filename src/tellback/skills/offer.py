"""`SkillOffer`: what one run of the loop shows a model of its skills, and which of their tools it may call by now."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tellback.errors import ConfigurationError, NotFoundError, SkillError
from tellback.skills.calling import await_resolver
from tellback.skills.index import build_index
from tellback.skills.opening import resolve_requirements
from tellback.skills.resolver import SkillResolver
from tellback.skills.skill import Skill
from tellback.skills.toolset import BUILTIN_NAMES, TOOL_TIMEOUT_SECONDS, Skillset
from tellback.tools import Tool, tools_by_name
from tellback.types import Message, ToolCall, as_message

log = logging.getLogger("tellback.skills")

SEARCH_LINE = "Skills that are not listed here can be found with search_skills(query), then read with read_skill(name)."


class SkillOffer:
    """The skills of one run: `index` for the system prompt, `tools` to offer besides the application's own.

    `tools` is live: it gains a skill's tools when the model reads or applies the skill. Look at it before each call.

    >>> import asyncio
    >>> from tellback.skills import in_memory_resolver
    >>> offer = asyncio.run(SkillOffer.of(in_memory_resolver([Skill("tone", "Our voice")])))
    >>> print(offer.index)
    Available skills you can read with read_skill(name):
    - tone: Our voice
    """

    def __init__(
        self,
        resolver: SkillResolver,
        turn_context: Mapping[str, Any],
        skill_context: Mapping[str, Any] | None,
        own_tools: Mapping[str, Tool | None],
        timeout: float | None,
    ) -> None:
        self._resolver = resolver
        self._turn_context = dict(turn_context)
        self._own_tools = own_tools
        self._timeout = timeout
        self._tool_owners: dict[str, str] = {}
        self._opened_names: dict[str, None] = {}
        self._skillset = Skillset(resolver, skill_context, self.open, lambda: dict(self._turn_context))
        self.index = ""
        self.tools: dict[str, Tool] = {tool.name: tool for tool in self._skillset.tools(timeout)}
        conflicts = sorted(own_tools.keys() & self.tools.keys())
        if conflicts:
            raise ConfigurationError(
                f"The tool {conflicts[0]!r} has the name of one that comes with skills: give it another name."
            )

    @classmethod
    async def of(
        cls,
        resolver: SkillResolver,
        *,
        messages: Sequence[Message] = (),
        system: str | None = None,
        model: str = "",
        skill_context: Mapping[str, Any] | None = None,
        taken: Iterable[str] | Mapping[str, Tool] = (),
        tool_timeout: float | None = TOOL_TIMEOUT_SECONDS,
    ) -> SkillOffer:
        """The offer for a turn: asks the resolver once what to list, and raises `SkillError` if it cannot say.

        `messages`, `system` and `model` are what the resolver may look at, `skill_context` is what body functions
        get, and `taken` are the application's own tools by name, or their names, which no skill's tool replaces.
        """
        turn_context = {"messages": tuple(messages), "system": system, "model": model}
        own_tools: dict[str, Tool | None] = dict(taken) if isinstance(taken, Mapping) else dict.fromkeys(taken)
        offer = cls(resolver, turn_context, skill_context, own_tools, tool_timeout)
        index = build_index(
            await await_resolver(resolver.list_skills(dict(turn_context)), "SkillResolver.list_fn", tool_timeout)
        )
        lines = [index, SEARCH_LINE if resolver.search_fn is not None else ""]
        offer.index = "\n".join(filter(None, lines))
        return offer

    @property
    def opened(self) -> tuple[str, ...]:
        """The names of the skills that were opened, the required ones too."""
        return tuple(self._opened_names)

    async def reopen(self, messages: Sequence[Message | Mapping[str, Any]], names: Iterable[str] = ()) -> None:
        """Offer the tools of every skill that was read or applied in a history, as another process may have done.

        Their body functions are not called again. A skill that is gone since, or cannot be opened any more, is left
        out with a warning in the log.
        """
        history = [as_message(message) for message in messages]
        self._turn_context["messages"] = tuple(history)
        for name in dict.fromkeys([*names, *_find_opened_names(history)]):
            try:
                opened = resolve_requirements(self._resolver, name)
                self.open(await await_resolver(opened, "SkillResolver.read_fn", self._timeout))
            except (NotFoundError, SkillError, ConfigurationError) as error:
                log.warning("the tools of skill %r are not offered again: %s", name, error)

    def open(self, skills: Sequence[Skill]) -> None:
        """Offer the tools of skills, all or none: a name that is taken raises `SkillError`."""
        added: dict[str, Tool] = {}
        owners = dict(self._tool_owners)
        for skill in skills:
            for name, tool in tools_by_name(skill.tools).items():
                if not self._is_own_tool(skill, name, tool):
                    existing = added.get(name) or self.tools.get(name)
                    added[name] = _choose_tool(skill, tool, existing, owners.get(name))
                    owners[name] = skill.name
        if any(skill.files is not None for skill in skills):
            added |= self._build_file_tool(skills[-1])
        self.tools.update(added)
        self._tool_owners = owners
        self._opened_names.update(dict.fromkeys(skill.name for skill in skills))
        self._skillset.allow_files(skills)

    def _build_file_tool(self, skill: Skill) -> dict[str, Tool]:
        tool = self._skillset.file_tool(self._timeout)
        if tool.name in self._own_tools:
            raise SkillError(skill.name, f"its files cannot be read: the application has a tool called {tool.name!r}.")
        return {} if tool.name in self.tools else {tool.name: tool}

    def _is_own_tool(self, skill: Skill, name: str, tool: Tool) -> bool:
        """Whether the application offers this very tool itself; another one of its name is refused."""
        if name not in self._own_tools:
            return False
        own = self._own_tools[name]
        if own is None or own.fn != tool.fn:
            raise SkillError(skill.name, f"its tool {name!r} cannot be offered: the application has one of this name.")
        return True


def _choose_tool(skill: Skill, tool: Tool, existing: Tool | None, owner: str | None) -> Tool:
    """The tool to offer under this name, where the skill `owner` may already have one there."""
    if tool.name in BUILTIN_NAMES:
        raise SkillError(skill.name, f"its tool {tool.name!r} has the name of one that comes with skills; rename it.")
    if existing is None:
        return tool
    if existing.fn == tool.fn:
        return existing if existing.requires_approval else tool  # another skill cannot lift what a person must decide
    if owner != skill.name:
        raise SkillError(skill.name, f"its tool {tool.name!r} cannot be offered: skill {owner!r} has one of this name.")
    return tool  # the resolver made the skill anew


def _find_opened_names(messages: Sequence[Message]) -> Iterable[str]:
    """The names of the skills that were read or applied, in order, each once."""
    calls = [call for call in _find_successful_calls(messages) if call.name in ("read_skill", "apply_skill")]
    names = [call.input.get("name") for call in calls]
    return dict.fromkeys(name for name in names if isinstance(name, str))


def _find_successful_calls(messages: Sequence[Message]) -> Iterator[ToolCall]:
    """The calls that have a result, and one that is not an error. Some providers use an id again in a later turn."""
    pending: dict[str, ToolCall] = {}
    for message in messages:
        if message.role == "assistant":
            pending.update({call.id: call for call in message.tool_calls})
        elif message.role == "tool" and message.tool_call_id in pending:
            call = pending.pop(message.tool_call_id)
            if not message.is_error:
                yield call
