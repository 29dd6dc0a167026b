"""What an agent says: the prompt of the reply, and the modes in which answers are written beforehand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tellback.agent.canned import CannedResponse, fillable
from tellback.agent.move import Heard, Moved
from tellback.agent.prompts import PromptBuilder
from tellback.agent.route import Route
from tellback.agent.session import ToolRun
from tellback.agent.values import Capability, CompositionMode, Guideline, GuidelineMatch, Term
from tellback.errors import CannedResponseError
from tellback.types import ChatReply
from tellback.types.jsontext import dump_line

LONGEST_RESULT = 6_000

PREFERRED = (
    "Prefer one of these answers, word for word, where it fits what is to be said. Otherwise use your own words."
)
COMPOSED = """\
Put your answer together from these texts: whole sentences, in any order, with no more change than grammar needs. Say \
nothing that they do not say."""


@dataclass(frozen=True, slots=True)
class Persona:
    """What of an agent goes into every prompt."""

    name: str
    description: str | None
    goal: str | None
    rules: Sequence[str]
    prohibitions: Sequence[str]
    terms: Sequence[Term]
    capabilities: Sequence[Capability]


def matched(guidelines: Iterable[Guideline], heard: Heard) -> list[GuidelineMatch]:
    """The guidelines that hold: those without a condition, and those whose condition does."""
    return [
        GuidelineMatch(each, "always" if each.condition is None else each.condition)
        for each in guidelines
        if each.enabled and (each.condition is None or each.condition in heard.holds)
    ]


def reply_prompt(
    persona: Persona,
    moved: Moved,
    heard: Heard,
    matches: Sequence[GuidelineMatch],
    context: Mapping[str, Any],
    routes: Mapping[str, Route],
    offered: Sequence[Route],
    canned: str,
    remembered: str | None,
) -> str:
    """The system prompt of a reply. What changes least comes first, so that providers can keep it.

    `offered` are routes to mention where none is active, `canned` what the mode asks for, `remembered` what memory has.
    """
    prompt = PromptBuilder().add_identity(persona.name, persona.description, persona.goal)
    prompt.add_section("rules", _rules(persona.rules, persona.prohibitions))
    prompt.add_glossary(persona.terms).add_capabilities(persona.capabilities)
    always = [match for match in matches if match.guideline.condition is None]
    prompt.add_guidelines([*always, *(match for match in matches if match.guideline.condition is not None)])
    if moved.route is not None:
        prompt.add_active_routes([_shown(moved.route)])
    prompt.add_context(context)
    if remembered:
        prompt.add_section("memory", remembered)
    prompt.add_section("now", "\n".join(_now(moved, heard, routes, offered)))
    prompt.add_section("wording", canned)
    return prompt.build()


def _rules(rules: Sequence[str], prohibitions: Sequence[str]) -> str:
    return "\n".join(
        [*(f"- You must: {each}" for each in rules), *(f"- You must never: {each}" for each in prohibitions)]
    )


def _shown(route: Route) -> dict[str, Any]:
    """A route without its conditions: they are for entering it."""
    return {
        "title": route.title,
        "description": route.description,
        "rules": route.rules,
        "prohibitions": route.prohibitions,
    }


def _now(moved: Moved, heard: Heard, routes: Mapping[str, Route], offered: Sequence[Route]) -> list[str]:
    """What to do in this very answer."""
    route, state = moved.route, moved.state
    if route is None:
        lines = ["Answer the user within your goal."]
        if offered:
            lines.append(f"You can help with: {'; '.join(each.title for each in offered)}.")
        return lines
    lines = []
    known = route.gathering.plain(moved.session.extracted)
    if known:
        lines.append(f"Known, never to be asked again: {dump_line(known)}")
    lines += [_told(each.name, run) for each, run in _runs(moved)]
    if moved.ended:
        lines.append(f"{route.title!r} is completed with this: conclude it, and ask for nothing more.")
    elif state is not None and state.kind == "chat":
        lines.append(f"Do this: {state.description}")
        fields = route.gathering.fields
        lines += [f"To be asked for: {name} {fields[name].text}" for name in moved.missing]
    elif state is not None and any(each.state_id == state.id for each in moved.session.waiting):
        lines.append(f"{state.title} waits for a person's approval. Say so; it has not happened.")
    elif not moved.ran:
        lines.append("Go on with the route.")
    back = [name for name in moved.changed if name not in moved.session.extracted]
    if back:
        lines.append(f"The user took back: {', '.join(back)}.")
    lines += [
        f"The user said {each.field} is {dump_line(each.value)}, which cannot be: {each.problem}. Say so; ask again."
        for each in heard.rejected
    ]
    left = [routes[id].title for id, kept in moved.session.left.items() if id in routes and not kept.dropped]
    if left:
        lines.append(f"Left unfinished: {'; '.join(left)}. Offer to go on with it when this is done.")
    return lines


def _runs(moved: Moved) -> list[tuple[Any, ToolRun]]:
    """What tools gave in this route, in the order of its path."""
    assert moved.route is not None
    runs = moved.session.progress.runs
    found = []
    for id in moved.session.progress.path:
        state = moved.route.state(id)
        if state is not None and state.tool is not None and id in runs and not _is_waiting(moved, id):
            found.append((state.tool, runs[id]))
    return found


def _is_waiting(moved: Moved, id: str) -> bool:
    return any(each.state_id == id for each in moved.session.waiting)


def _told(name: str, run: ToolRun) -> str:
    called = f"{name}({dump_line(run.arguments)})"
    if run.error is not None:
        return f"{called} failed: {dump_line(run.error[:LONGEST_RESULT])}. Tell the user, and what can be done."
    return f"{called} gave: {_on_one_line(run.content)}"


def _on_one_line(content: str) -> str:
    """A tool's result; one of several lines is quoted, or one of them could pass for a line of the prompt."""
    if len(content.splitlines()) > 1:
        try:
            content = dump_line(json.loads(content))
        except (ValueError, RecursionError):
            content = dump_line(content)
    return content if len(content) <= LONGEST_RESULT else f"{content[:LONGEST_RESULT]}…"


def canned_levels(moved: Moved, agent: Sequence[CannedResponse]) -> list[Sequence[CannedResponse]]:
    """The canned responses of the state, of the route and of the agent, those nearest first."""
    found = []
    if moved.state is not None:
        found.append(moved.state.canned_responses)
    if moved.route is not None:
        found.append(moved.route.canned_responses)
    return [*found, agent]


def wording(mode: CompositionMode, texts: Sequence[str]) -> str:
    """What a mode tells the model of the canned responses."""
    if not texts or mode in (CompositionMode.FLUID, CompositionMode.CANNED_STRICT):
        return ""
    lead = PREFERRED if mode is CompositionMode.CANNED_FLUID else COMPOSED
    return "\n".join([lead, *(f"- {dump_line(text)}" for text in texts)])


def all_texts(
    levels: Sequence[Sequence[CannedResponse]], data: Mapping[str, Any], context: Any, heard: Heard
) -> list[str]:
    """Every canned response that can be said now: it has its values, and its condition holds."""
    meant = [each for level in levels for each in level if each.condition is None or each.condition in heard.holds]
    ready, _ = fillable(meant, data, context)
    return [text for _, text in ready]


def sayable(
    levels: Sequence[Sequence[CannedResponse]], data: Mapping[str, Any], context: Any, heard: Heard, place: str
) -> list[str]:
    """What a strict agent may say: what was written for a condition that holds, of the nearest level that has such;
    else what the nearest level has that is for no condition."""
    lacking: list[str] = []
    filled = []
    for level in levels:
        ready, missing = fillable(level, data, context)
        lacking += missing
        filled.append(ready)
    held: list[list[str]] = [[text for each, text in ready if each.condition in heard.holds] for ready in filled]
    usual = [[text for each, text in ready if each.condition is None] for ready in filled]
    for texts in (*held, *usual):
        if texts:
            return list(dict.fromkeys(texts))
    raise CannedResponseError(place, list(dict.fromkeys(lacking)))


def saying(text: str) -> Callable[..., ChatReply]:
    """A chat function that says this, whatever it is asked."""

    def say(model: str, messages: Any, system: str | None, tools: Any) -> ChatReply:
        return ChatReply(text=text)

    return say
