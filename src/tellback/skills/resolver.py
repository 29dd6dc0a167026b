"""Choose the skills a model may use: the index for the prompt, search, and `SkillResolver`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tellback.errors import ConfigurationError, NotFoundError, SkillError
from tellback.skills.skill import Skill, skills_for, validate_entries
from tellback.tools.dispatch import call_function

HEADER = "Available skills you can read with read_skill(name):"

T = TypeVar("T")

_MAX_QUERY_WORDS = 50
"""Longer queries are truncated, because each word costs time."""

SkillEntry = Skill | Callable[..., Any]


def build_index(skills: Iterable[SkillEntry]) -> str:
    """Return the part of a system prompt that lists the skills, or an empty text without skills.

    >>> print(build_index([Skill("customer-tone", "Apply our voice", when=["reply", "marketing"])]))
    Available skills you can read with read_skill(name):
    - customer-tone: Apply our voice (when: reply, marketing)
    """
    lines = [index_line(skill) for skill in skills_for(skills)]
    return "\n".join([HEADER, *lines]) if lines else ""


def index_line(skill: Skill) -> str:
    """Format a skill on one line, even if its description has line breaks.

    >>> index_line(Skill("receipts", "Read a receipt", when=["expense"], modalities=["image", "pdf"]))
    '- receipts: Read a receipt (when: expense) [modalities: image, pdf]'
    """
    line = f"- {skill.name}"
    description = _one_line(skill.description)
    if description:
        line += f": {description}"
    if skill.when:
        line += f" (when: {', '.join(map(_one_line, skill.when))})"
    if skill.modalities and tuple(skill.modalities) != ("text",):
        line += f" [modalities: {', '.join(map(_one_line, skill.modalities))}]"
    return line


def list_skills_of(skills: Iterable[SkillEntry]) -> list[dict[str, Any]]:
    """Return the result of `list_skills`: name, description and trigger phrases of each skill.

    >>> list_skills_of([Skill("tone", "Our voice", when=["reply"])])
    [{'name': 'tone', 'description': 'Our voice', 'when': ['reply']}]
    """
    return [
        {"name": skill.name, "description": skill.description, "when": list(skill.when)} for skill in skills_for(skills)
    ]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def find_skill(skills: Iterable[SkillEntry], name: str) -> Skill | None:
    """Return the skill with this name, or None.

    >>> find_skill([Skill("tone", "Our voice")], "manners") is None
    True
    """
    return next((skill for skill in skills_for(skills) if skill.name == name), None)


def search_skills_of(skills: Iterable[SkillEntry], query: str, limit: int = 10, min_score: float = 1) -> list[Skill]:
    """Return the skills that best match the words of the query; equal matches keep their order.

    A word scores 3 if it is part of the name, 2 for a trigger phrase and 1 for the description, ignoring case.

    >>> pool = [Skill("tone", "Our voice"), Skill("refunds", "Angry customers", when=["money back"])]
    >>> [skill.name for skill in search_skills_of(pool, "They want their MONEY")]
    ['refunds']
    """
    words = _split_query(query)
    scored = [(_score_skill(skill, words), skill) for skill in skills_for(skills)]
    matches = [pair for pair in scored if pair[0] >= min_score]
    matches.sort(key=lambda pair: -pair[0])
    return [skill for _, skill in matches[: max(limit, 0)]]


def _split_query(query: str) -> list[str]:
    words = list(dict.fromkeys(query.casefold().split()))[:_MAX_QUERY_WORDS]
    # A single letter would match nearly every skill.
    return [word for word in words if len(word) > 1] or words


def _score_skill(skill: Skill, words: list[str]) -> int:
    name, description = skill.name.casefold(), skill.description.casefold()
    when = "\n".join(skill.when).casefold()
    return sum(3 * (word in name) + 2 * (word in when) + (word in description) for word in words)


async def await_resolver(work: Awaitable[T], source: str, seconds: float | None) -> T:
    """Await a resolver's function; raise `SkillError` with its name if it fails or takes too long."""
    try:
        async with asyncio.timeout(seconds) as deadline:
            return await work
    except (ConfigurationError, NotFoundError, SkillError):
        raise
    except Exception as error:  # user code may raise anything
        if isinstance(error, TimeoutError) and deadline.expired():
            problem = f"it did not answer within {seconds:g} seconds."
        else:
            problem = f"it failed: {type(error).__name__}: {error}"
        raise SkillError(source, problem) from error


@dataclass(frozen=True, slots=True)
class SkillResolver:
    """Provides skills through functions. Each function may be async, or sync and then runs in a thread.

    `list_fn(ctx)` returns the skills to advertise; `ctx` contains the turn's `messages`, `system` and `model`.
    `read_fn(name)` returns a skill or None, and may also return skills that are not listed. The optional
    `search_fn(query, opts)`, with `limit` and `min_score` in `opts`, lets the model search. `skills` is the complete
    list of skills, if known.

    >>> tone = Skill("tone", "Our voice", body="Be warm.")
    >>> SkillResolver(list_fn=lambda ctx: [tone], read_fn={"tone": tone}.get).search_fn is None
    True
    """

    list_fn: Callable[..., Any]
    read_fn: Callable[..., Any]
    search_fn: Callable[..., Any] | None = None
    skills: Sequence[SkillEntry] | None = None

    def __post_init__(self) -> None:
        for name in ("list_fn", "read_fn", "search_fn"):
            value = getattr(self, name)
            if not callable(value) and not (name == "search_fn" and value is None):
                raise ConfigurationError(f"SkillResolver: {name} must be a function, got {value!r:.80}.")
        if self.skills is not None:
            object.__setattr__(self, "skills", tuple(skills_for(self.skills)))

    async def list_skills(self, ctx: Mapping[str, Any]) -> list[Skill]:
        """Call `list_fn` and validate its result."""
        return _validate_result(await call_function(self.list_fn, ctx), "list_fn")

    async def read(self, name: str) -> Skill | None:
        """Call `read_fn` and validate its result."""
        found = await call_function(self.read_fn, name)
        return None if found is None else _validate_result([found], "read_fn")[0]

    async def search_skills(self, query: str, limit: int = 10, min_score: float = 1) -> list[Skill]:
        """Call `search_fn`, validate its result, and return at most `limit` skills."""
        if self.search_fn is None:
            raise ConfigurationError("This SkillResolver cannot search: pass search_fn, or use searchable_resolver.")
        hits = await call_function(self.search_fn, query, {"limit": limit, "min_score": min_score})
        return _validate_result(hits, "search_fn")[:limit]


def in_memory_resolver(skills: Iterable[SkillEntry]) -> SkillResolver:
    """Return a resolver that lists all skills.

    >>> len(in_memory_resolver([Skill("tone", "Our voice")]).skills)
    1
    """
    pool = skills_for(skills)
    return _build_resolver(pool, pool, searchable=False)


def searchable_resolver(skills: Iterable[SkillEntry], always_on: Iterable[str | SkillEntry] = ()) -> SkillResolver:
    """Return a resolver for many skills: it lists only `always_on` (names or skills); search finds the others.

    >>> pool = [Skill("tone", "Our voice"), Skill("refunds", "When to refund")]
    >>> searchable_resolver(pool, always_on=["tone"]).search_fn is not None
    True
    """
    pool = skills_for(skills)
    listed = _resolve_always_on(pool, always_on)
    known = {skill.name for skill in pool}
    return _build_resolver([*pool, *(skill for skill in listed if skill.name not in known)], listed, searchable=True)


def effective_resolver(
    skill_resolver: SkillResolver | None, skills: Iterable[SkillEntry] | None = None
) -> SkillResolver | None:
    """Return the resolver of a run: `skill_resolver`, a resolver over `skills`, or None.

    >>> effective_resolver(None, []) is None
    True
    """
    if skill_resolver is not None:
        if not isinstance(skill_resolver, SkillResolver):
            raise ConfigurationError(f"skill_resolver must be a SkillResolver, got {skill_resolver!r:.80}.")
        return skill_resolver
    found = [] if skills is None else skills_for(skills)
    return in_memory_resolver(found) if found else None


def as_resolver(source: SkillResolver | Iterable[SkillEntry]) -> SkillResolver:
    """Return a resolver unchanged, or a searchable resolver over a list of skills."""
    if isinstance(source, SkillResolver):
        return source
    pool = skills_for(source)
    return _build_resolver(pool, pool, searchable=True)


def _build_resolver(pool: list[Skill], listed: list[Skill], *, searchable: bool) -> SkillResolver:
    by_name = {skill.name: skill for skill in pool}

    async def list_fn(ctx: Mapping[str, Any]) -> list[Skill]:
        return listed

    async def read_fn(name: str) -> Skill | None:
        return by_name.get(name)

    async def search_fn(query: str, opts: Mapping[str, Any]) -> list[Skill]:
        return search_skills_of(pool, query, opts.get("limit", 10), opts.get("min_score", 1))

    return SkillResolver(list_fn, read_fn, search_fn if searchable else None, tuple(pool))


def _resolve_always_on(pool: list[Skill], entries: Iterable[str | SkillEntry]) -> list[Skill]:
    if isinstance(entries, str):
        raise SkillError(entries, f"always_on must be a list: write always_on=[{entries!r:.80}].")
    by_name = {skill.name: skill for skill in pool}
    listed: list[Skill] = []
    for entry in entries:
        if not isinstance(entry, str):
            [converted] = skills_for([entry])
            if by_name.setdefault(converted.name, converted) != converted:
                raise SkillError(converted.name, "another skill in the list has the same name; rename one of them.")
            listed.append(converted)
        elif entry in by_name:
            listed.append(by_name[entry])
        else:
            raise SkillError(entry, "always_on contains this name, but no skill has it.")
    return skills_for(listed)


def _validate_result(value: Any, source: str) -> list[Skill]:
    """Validate the skills returned by a resolver function; the same object is used once."""
    try:
        return skills_for({id(entry): entry for entry in validate_entries(value)}.values())
    except (SkillError, ConfigurationError) as error:
        raise ConfigurationError(f"SkillResolver: {source} returned an invalid result. {error}") from error
