"""Resolvers: listing, searching and reading skills, and rejecting invalid results."""

from __future__ import annotations

from typing import Any

import pytest

from tellback.errors import ConfigurationError, SkillError
from tellback.skills import Skill, SkillResolver, effective_resolver, in_memory_resolver, searchable_resolver, skill

TONE = Skill("tone", "Our voice", when=["reply"])
REFUNDS = Skill("refunds", "When to refund")
TURN: dict[str, Any] = {"messages": (), "system": None, "model": ""}


async def test_in_memory_resolver_lists_all_skills_and_cannot_search() -> None:
    resolver = in_memory_resolver([TONE, REFUNDS])
    assert await resolver.list_skills(TURN) == [TONE, REFUNDS] == list(resolver.skills or ())
    assert await resolver.read("tone") is TONE
    assert await resolver.read("nothing") is None
    assert resolver.search_fn is None
    with pytest.raises(ConfigurationError, match="search"):
        await resolver.search_skills("voice")


async def test_searchable_resolver_lists_only_always_on_skills() -> None:
    extra = Skill("extra", "Not in the list")
    resolver = searchable_resolver([TONE, REFUNDS], always_on=["refunds", extra])
    assert await resolver.list_skills(TURN) == [REFUNDS, extra]
    assert await resolver.search_skills("reply") == [TONE]
    assert await resolver.read("tone") is TONE
    assert await resolver.read("extra") is extra
    assert await searchable_resolver([TONE]).list_skills(TURN) == []


@pytest.mark.parametrize("always_on", ["tone", ["nothing"], [Skill("tone", "Another voice")], ["tone", "tone"]])
def test_invalid_always_on_values_are_rejected(always_on: Any) -> None:
    with pytest.raises(SkillError):
        searchable_resolver([TONE], always_on=always_on)


async def test_resolver_functions_may_be_sync_or_async() -> None:
    seen: list[Any] = []

    async def search(query: str, opts: dict[str, Any]) -> list[Skill]:
        seen.append((query, opts))
        return [TONE, TONE, REFUNDS]

    resolver = SkillResolver(lambda ctx: (TONE for _ in range(1)), {"tone": TONE}.get, search)
    assert await resolver.list_skills(TURN) == [TONE]
    assert await resolver.read("tone") is TONE
    assert await resolver.search_skills("voice", limit=1, min_score=2) == [TONE]
    assert seen == [("voice", {"limit": 1, "min_score": 2})]


async def test_resolvers_may_return_marked_functions() -> None:
    @skill(description="Our voice")
    def voice() -> str:
        return "Be warm."

    resolver = SkillResolver(lambda ctx: [voice], lambda name: voice)
    assert (await resolver.list_skills(TURN))[0].name == "voice"
    assert await resolver.read("x") == Skill.from_fn(voice)


@pytest.mark.parametrize(
    "nonsense", [None, 3, "tone", {"tone": TONE}, [None], [3], [TONE, Skill("tone", "Twice")], TONE]
)
async def test_invalid_results_are_reported_with_the_function_name(nonsense: Any) -> None:
    resolver = SkillResolver(lambda ctx: nonsense, lambda name: nonsense, lambda query, opts: nonsense)
    with pytest.raises(ConfigurationError, match="list_fn"):
        await resolver.list_skills(TURN)
    with pytest.raises(ConfigurationError, match="search_fn"):
        await resolver.search_skills("x")
    if nonsense is not None and nonsense is not TONE:
        with pytest.raises(ConfigurationError, match="read_fn"):
            await resolver.read("x")


@pytest.mark.parametrize("functions", [(None, len), (len, "x"), (len, len, 3)])
def test_resolver_arguments_must_be_functions(functions: Any) -> None:
    with pytest.raises(ConfigurationError, match="_fn"):
        SkillResolver(*functions)


async def test_skill_resolver_takes_precedence_over_skills() -> None:
    own_resolver = in_memory_resolver([TONE])
    assert effective_resolver(own_resolver, [REFUNDS]) is own_resolver
    resolver = effective_resolver(None, [REFUNDS])
    assert resolver is not None
    assert await resolver.list_skills(TURN) == [REFUNDS]
    assert effective_resolver(None, None) is effective_resolver(None, []) is None
    with pytest.raises(ConfigurationError, match="SkillResolver"):
        effective_resolver([TONE], None)  # type: ignore[arg-type]
