"""The tools that let a model find, read and apply skills, and `SkillOffer`, the skills and tools of one run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tellback.errors import ConfigurationError, NotFoundError, SkillError
from tellback.skills.loader import render_skills, resolve_requirements
from tellback.skills.resolver import (
    SkillEntry,
    SkillResolver,
    as_resolver,
    await_resolver,
    build_index,
    in_memory_resolver,
    list_skills_of,
)
from tellback.skills.skill import Skill, SkillFolder, skills_for
from tellback.tools import Tool, tools_by_name
from tellback.tools.dispatch import run_in_thread
from tellback.types import Message, ToolCall, as_message

log = logging.getLogger("tellback.skills")

MAX_SEARCH_RESULTS = 50
BUILTIN_NAMES = ("list_skills", "read_skill", "apply_skill", "search_skills", "read_skill_file")
TOOL_TIMEOUT_SECONDS = 30.0
"""Timeout of body functions and resolvers, in seconds; the model then receives an error."""

OnOpen = Callable[[Skill], None]
SkillSource = SkillResolver | Iterable[SkillEntry]


SEARCH_LINE = "Skills that are not listed here can be found with search_skills(query), then read with read_skill(name)."


class Skillset:
    """The state behind the tools. The tools are its methods, so their schemas are built once per process."""

    def __init__(
        self,
        resolver: SkillResolver,
        skill_context: Mapping[str, Any] | None = None,
        on_open: Callable[[Sequence[Skill]], None] | None = None,
        list_context: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._resolver = resolver
        self._context = _validate_context(skill_context)
        self._on_open = on_open
        self._list_context = list_context or (lambda: {"messages": (), "system": None, "model": ""})
        self._folders: dict[str, SkillFolder] = {}

    async def list_skills(self) -> list[dict[str, Any]]:
        """List the available skills: name, description, and when to use each."""
        return list_skills_of(await self._resolver.list_skills(self._list_context()))

    async def read_skill(self, name: str) -> str:
        """Read a skill's instructions before you start its task. Afterwards you can call the skill's tools.

        Args:
            name: The skill's name, as listed.
        """
        return await self._open_skill(name, self._context)

    async def apply_skill(self, name: str, ctx: dict[str, Any] | None = None) -> str:
        """Read a skill's instructions for the current case. Afterwards you can call the skill's tools.

        Args:
            name: The skill's name, as listed.
            ctx: Values that the skill should know about this case, by name.
        """
        return await self._open_skill(name, {**(ctx or {}), **self._context})

    async def search_skills(self, query: str, limit: int = 10) -> list[dict[str, Any]]:
        """Search all skills, including unlisted ones.

        Args:
            query: A few words about the task.
            limit: Maximum number of results, at most 50.
        """
        return list_skills_of(await self._resolver.search_skills(query, max(1, min(limit, MAX_SEARCH_RESULTS))))

    async def read_skill_file(self, skill: str, path: str) -> str:
        """Read a file of a skill you have read.

        Args:
            skill: The skill's name.
            path: The file's path, as listed with the skill.
        """
        folder = self._folders.get(skill)
        if folder is None:
            known = ", ".join(sorted(self._folders)) or "none"
            raise SkillError(skill, f"it was not read yet, or has no files. Skills read so far, with files: {known}.")
        return await run_in_thread(folder.text, path, skill)

    async def _open_skill(self, name: str, ctx: Mapping[str, Any]) -> str:
        skills = await resolve_requirements(self._resolver, name)
        text = await render_skills(skills, ctx)
        if self._on_open is not None:
            self._on_open(skills)
        self.allow_files(skills)
        return text

    def allow_files(self, skills: Iterable[Skill]) -> None:
        """Allow reading the files of these skills."""
        self._folders.update({skill.name: skill.files for skill in skills if skill.files is not None})

    def tools(self, timeout: float | None) -> list[Tool]:
        """Return all tools except `read_skill_file`; `search_skills` only if the resolver can search."""
        methods: list[Callable[..., Any]] = [self.list_skills, self.read_skill, self.apply_skill]
        if self._resolver.search_fn is not None:
            methods.append(self.search_skills)
        return [Tool.from_fn(method, timeout=timeout) for method in methods]

    def file_tool(self, timeout: float | None) -> Tool:
        """Return `read_skill_file`, which works only after a skill with files was read or applied."""
        return Tool.from_fn(self.read_skill_file, timeout=timeout)


def builtins(
    skills: Iterable[SkillEntry],
    skill_context: Mapping[str, Any] | None = None,
    *,
    on_open: OnOpen | None = None,
    timeout: float | None = TOOL_TIMEOUT_SECONDS,
) -> list[Tool]:
    """Return the tools `list_skills`, `read_skill` and `apply_skill` for a list of skills.

    `skill_context` is passed to the body functions; its keys take precedence over those the model passes to
    `apply_skill`. `on_open` is called with each skill that was read or applied, required skills first, so that its
    tools can be offered. If a skill has files, `read_skill_file` is included. Create new tools for every run, because
    they record which skills were read.

    >>> [tool.name for tool in builtins([Skill("tone", "Our voice")])]
    ['list_skills', 'read_skill', 'apply_skill']
    """
    return builtins_with_resolver(in_memory_resolver(skills), skill_context, on_open=on_open, timeout=timeout)


def builtins_with_resolver(
    resolver: SkillResolver,
    skill_context: Mapping[str, Any] | None = None,
    *,
    on_open: OnOpen | None = None,
    timeout: float | None = TOOL_TIMEOUT_SECONDS,
) -> list[Tool]:
    """Like `builtins`, but for a resolver, and with `search_skills` if it can search.

    `read_skill_file` is included unless the resolver's `skills` are known and have no files.

    >>> from tellback.skills import searchable_resolver
    >>> [tool.name for tool in builtins_with_resolver(searchable_resolver([Skill("tone", "Our voice")]))][-1]
    'search_skills'
    """
    skillset = Skillset(resolver, skill_context, _call_for_each(on_open))
    known_skills = resolver.skills
    may_have_files = known_skills is None or any(skill.files is not None for skill in skills_for(known_skills))
    return [*skillset.tools(timeout), *([skillset.file_tool(timeout)] if may_have_files else [])]


def builtin_list_skills(source: SkillSource, *, timeout: float | None = TOOL_TIMEOUT_SECONDS) -> Tool:
    """Return only `list_skills`, for skills or a resolver, which is called each time.

    >>> builtin_list_skills([Skill("tone", "Our voice")]).name
    'list_skills'
    """
    return Tool.from_fn(Skillset(as_resolver(source)).list_skills, timeout=timeout)


def builtin_read_skill(
    source: SkillSource,
    skill_context: Mapping[str, Any] | None = None,
    *,
    on_open: OnOpen | None = None,
    timeout: float | None = TOOL_TIMEOUT_SECONDS,
) -> Tool:
    """Return only `read_skill`, for skills or a resolver.

    >>> builtin_read_skill([Skill("tone", "Our voice")]).name
    'read_skill'
    """
    skillset = Skillset(as_resolver(source), skill_context, _call_for_each(on_open))
    return Tool.from_fn(skillset.read_skill, timeout=timeout)


def builtin_apply_skill(
    source: SkillSource,
    skill_context: Mapping[str, Any] | None = None,
    *,
    on_open: OnOpen | None = None,
    timeout: float | None = TOOL_TIMEOUT_SECONDS,
) -> Tool:
    """Return only `apply_skill`, for skills or a resolver.

    >>> builtin_apply_skill([Skill("tone", "Our voice")]).parameters["required"]
    ['name']
    """
    skillset = Skillset(as_resolver(source), skill_context, _call_for_each(on_open))
    return Tool.from_fn(skillset.apply_skill, timeout=timeout)


def builtin_search_skills(source: SkillSource, *, timeout: float | None = TOOL_TIMEOUT_SECONDS) -> Tool:
    """Return only `search_skills`, for skills or a resolver with a `search_fn`.

    >>> builtin_search_skills([Skill("tone", "Our voice")]).name
    'search_skills'
    """
    resolver = as_resolver(source)
    if resolver.search_fn is None:
        raise ConfigurationError("This SkillResolver cannot search: pass search_fn, or use searchable_resolver.")
    return Tool.from_fn(Skillset(resolver).search_skills, timeout=timeout)


def _call_for_each(on_open: OnOpen | None) -> Callable[[Sequence[Skill]], None]:
    def each(skills: Sequence[Skill]) -> None:
        for skill in skills:
            if on_open is not None:
                on_open(skill)

    return each


def _validate_context(value: Mapping[str, Any] | None) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigurationError(f"skill_context must be a mapping with string keys, got {value!r:.80}.")
    return dict(value)


class SkillOffer:
    """The skills of one run: `index` for the system prompt, and `tools` to offer besides the application's tools.

    `tools` changes when the model reads or applies a skill: the skill's tools are added. Read it before each model
    call.

    >>> import asyncio
    >>> from tellback.skills import in_memory_resolver
    >>> offer = asyncio.run(SkillOffer.build(in_memory_resolver([Skill("tone", "Our voice")])))
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
            raise ConfigurationError(f"The tool name {conflicts[0]!r} is reserved for skills: rename the tool.")

    @classmethod
    async def build(
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
        """Build the offer of a turn. Calls the resolver's `list_fn` once, and raises `SkillError` if it fails.

        `messages`, `system` and `model` are passed to the resolver, and `skill_context` to body functions. `taken`
        contains the application's tools by name, or only their names; a skill's tool never replaces them.
        """
        turn_context = {"messages": tuple(messages), "system": system, "model": model}
        own_tools: dict[str, Tool | None] = dict(taken) if isinstance(taken, Mapping) else dict.fromkeys(taken)
        offer = cls(resolver, turn_context, skill_context, own_tools, tool_timeout)
        listed = await await_resolver(resolver.list_skills(dict(turn_context)), "SkillResolver.list_fn", tool_timeout)
        lines = [build_index(listed), SEARCH_LINE if resolver.search_fn is not None else ""]
        offer.index = "\n".join(filter(None, lines))
        return offer

    @property
    def opened(self) -> tuple[str, ...]:
        """The names of the opened skills, including required ones."""
        return tuple(self._opened_names)

    async def reopen(self, messages: Sequence[Message | Mapping[str, Any]], names: Iterable[str] = ()) -> None:
        """Offer the tools of every skill that was read or applied in a history, possibly by another process.

        Body functions are not called again. A skill that no longer exists or cannot be opened is skipped with a
        logged warning.
        """
        history = [as_message(message) for message in messages]
        self._turn_context["messages"] = tuple(history)
        for name in dict.fromkeys([*names, *_find_opened_names(history)]):
            try:
                opened = resolve_requirements(self._resolver, name)
                self.open(await await_resolver(opened, "SkillResolver.read_fn", self._timeout))
            except (NotFoundError, SkillError, ConfigurationError) as error:
                log.warning("The tools of skill %r are not offered again: %s", name, error)

    def open(self, skills: Sequence[Skill]) -> None:
        """Offer the tools of skills. A name conflict raises `SkillError`, and then no tool is added."""
        added: dict[str, Tool] = {}
        owners = dict(self._tool_owners)
        for skill in skills:
            for name, tool in tools_by_name(skill.tools).items():
                if not self._is_own_tool(skill, name, tool):
                    existing = added.get(name) or self.tools.get(name)
                    added[name] = _choose_tool(skill, tool, existing, owners.get(name))
                    owners[name] = skill.name
        if any(skill.files is not None for skill in skills):
            tool = self._skillset.file_tool(self._timeout)
            if tool.name in self._own_tools:
                problem = f"its files cannot be read: the application has a tool named {tool.name!r}."
                raise SkillError(skills[-1].name, problem)
            if tool.name not in self.tools:
                added[tool.name] = tool
        self.tools.update(added)
        self._tool_owners = owners
        self._opened_names.update(dict.fromkeys(skill.name for skill in skills))
        self._skillset.allow_files(skills)

    def _is_own_tool(self, skill: Skill, name: str, tool: Tool) -> bool:
        """Whether the application offers this same tool; a different tool with the same name is rejected."""
        if name not in self._own_tools:
            return False
        own = self._own_tools[name]
        if own is None or own.fn != tool.fn:
            raise SkillError(skill.name, f"its tool {name!r} conflicts with a tool of the application.")
        return True


def _choose_tool(skill: Skill, tool: Tool, existing: Tool | None, owner: str | None) -> Tool:
    """Return the tool to offer under this name, for which the skill `owner` may already have a tool."""
    if tool.name in BUILTIN_NAMES:
        raise SkillError(skill.name, f"its tool name {tool.name!r} is reserved for skills; rename it.")
    if existing is None:
        return tool
    if existing.fn == tool.fn:
        return existing if existing.requires_approval else tool  # another skill cannot remove a required approval
    if owner != skill.name:
        raise SkillError(skill.name, f"its tool {tool.name!r} conflicts with a tool of skill {owner!r}.")
    return tool  # the resolver has rebuilt the skill


def _find_opened_names(messages: Sequence[Message]) -> Iterable[str]:
    """Return the names of the skills that were read or applied successfully, in order, without duplicates."""
    names: dict[str, None] = {}
    pending: dict[str, ToolCall] = {}
    for message in messages:
        if message.role == "assistant":
            pending.update({call.id: call for call in message.tool_calls})
        elif message.role == "tool" and message.tool_call_id in pending:
            call = pending.pop(message.tool_call_id)  # some providers reuse ids in later turns
            name = call.input.get("name")
            if not message.is_error and call.name in ("read_skill", "apply_skill") and isinstance(name, str):
                names[name] = None
    return names
