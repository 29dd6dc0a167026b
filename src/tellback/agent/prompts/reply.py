"""The system prompt of a reply, and the choice of canned responses for each composition mode."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tellback.agent.definitions.canned_responses import CannedResponse, fill_canned_responses
from tellback.agent.definitions.guidelines import CompositionMode, Guideline, GuidelineMatch
from tellback.agent.flow.move import Interpretation, MoveResult
from tellback.agent.prompts.builder import PromptBuilder
from tellback.agent.sessions.session import ToolRun
from tellback.errors import CannedResponseError
from tellback.types import ChatReply
from tellback.types.jsontext import dump_json_line

if TYPE_CHECKING:
    from tellback.agent.agent import Agent

MAX_PROMPT_RESULT_LENGTH = 6_000

PREFER_INSTRUCTION = "If one of these answers fits, use it verbatim. Otherwise use your own words."
COMPOSE_INSTRUCTION = """\
Compose your answer from these texts: whole sentences, in any order, changed only as far as grammar requires. Add \
nothing else."""


def match_guidelines(guidelines: Iterable[Guideline], interpretation: Interpretation) -> list[GuidelineMatch]:
    """Return the guidelines that apply: those without a condition, and those whose condition is true."""
    return [
        GuidelineMatch(each, "always" if each.condition is None else each.condition)
        for each in guidelines
        if each.enabled and (each.condition is None or each.condition in interpretation.true_conditions)
    ]


def render_reply_prompt(
    agent: Agent,
    moved: MoveResult,
    interpretation: Interpretation,
    matches: Sequence[GuidelineMatch],
    context: Mapping[str, Any],
    wording_text: str,
    memory_text: str | None,
) -> str:
    """Build the system prompt of a reply. The most stable parts come first, so that providers can cache them.

    `wording_text` is the instruction of the composition mode, and `memory_text` the text of the user's memory.
    """
    prompt = PromptBuilder().add_identity(agent.name, agent.description, agent.goal)
    rules = [f"- You must: {each}" for each in agent.rules]
    rules += [f"- You must never: {each}" for each in agent.prohibitions]
    prompt.add_section("rules", "\n".join(rules))
    prompt.add_glossary(agent.terms).add_capabilities(agent.capabilities)
    ordered_matches = sorted(matches, key=lambda match: match.guideline.condition is not None)
    prompt.add_guidelines(ordered_matches)
    route = moved.route
    if route is not None:  # without its conditions, which decide only when to enter it
        fields = ("title", "description", "rules", "prohibitions")
        prompt.add_active_routes([{name: getattr(route, name) for name in fields}])
    prompt.add_context(context)
    prompt.add_section("memory", memory_text or "")
    prompt.add_section("now", "\n".join(_instruction_lines(agent, moved, interpretation)))
    prompt.add_section("wording", wording_text)
    return prompt.build()


def _instruction_lines(agent: Agent, moved: MoveResult, interpretation: Interpretation) -> list[str]:
    """Return the instructions for this reply."""
    route, state = moved.route, moved.state
    if route is None:
        lines = ["Answer the user within your goal."]
        if agent.routes:
            lines.append(
                f"You can help with: {'; '.join(each.title for each in agent.routes[: agent.limits.in_play])}."
            )
        return lines
    lines = []
    known = route.schema.plain(moved.session.extracted)
    if known:
        lines.append(f"Already known, do not ask for it again: {dump_json_line(known)}")
    pending_ids = {each.state_id for each in moved.session.pending_calls}
    runs = moved.session.progress.runs
    for id in moved.session.progress.path:
        passed = route.state(id)
        if passed is not None and passed.tool is not None and id in runs and id not in pending_ids:
            lines.append(_render_tool_run(passed.tool.name, runs[id]))
    if moved.ended:
        lines.append(f"{route.title!r} is completed. Conclude it, and ask for nothing more.")
    elif state is not None and state.kind == "chat":
        lines.append(f"Do this: {state.description}")
        fields = route.schema.fields
        lines += [f"Ask for: {name} {fields[name].schema_json}" for name in moved.missing]
    elif state is not None and state.id in pending_ids:
        lines.append(f"{state.title} waits for a person's approval. Tell the user; it has not run yet.")
    elif not moved.tool_runs:
        lines.append("Continue with the route.")
    taken_back = [name for name in moved.changed if name not in moved.session.extracted]
    if taken_back:
        lines.append(f"The user took back: {', '.join(taken_back)}.")
    lines += [
        f"The user stated {each.field} = {dump_json_line(each.value)}, which is invalid: {each.problem}."
        " Explain this, and ask again."
        for each in interpretation.rejected
    ]
    routes = agent.routes_by_id
    unfinished = [
        routes[id].title for id, paused in moved.session.paused_routes.items() if id in routes and not paused.dropped
    ]
    if unfinished:
        lines.append(f"Left unfinished: {'; '.join(unfinished)}. Offer to continue it when this is done.")
    return lines


def _render_tool_run(name: str, run: ToolRun) -> str:
    call = f"{name}({dump_json_line(run.arguments)})"
    if run.error is not None:
        error = dump_json_line(run.error[:MAX_PROMPT_RESULT_LENGTH])
        return f"{call} failed: {error}. Tell the user, and suggest what to do."
    return f"{call} returned: {_to_one_line(run.content)}"


def _to_one_line(content: str) -> str:
    """Return a tool's result as one line; a result of several lines is quoted, so that it cannot fake a prompt line."""
    if len(content.splitlines()) > 1:
        try:
            content = dump_json_line(json.loads(content))
        except (ValueError, RecursionError):
            content = dump_json_line(content)
    return content if len(content) <= MAX_PROMPT_RESULT_LENGTH else f"{content[:MAX_PROMPT_RESULT_LENGTH]}…"


def collect_canned_levels(moved: MoveResult, agent: Agent) -> list[Sequence[CannedResponse]]:
    """Return the canned responses of the state, the route and the agent, in this order."""
    return [level.canned_responses for level in (moved.state, moved.route, agent) if level is not None]


def render_wording(mode: CompositionMode, texts: Sequence[str]) -> str:
    """Return the composition mode's instruction with the canned responses, or an empty string."""
    if not texts or mode in (CompositionMode.FLUID, CompositionMode.CANNED_STRICT):
        return ""
    lead = PREFER_INSTRUCTION if mode is CompositionMode.CANNED_FLUID else COMPOSE_INSTRUCTION
    return "\n".join([lead, *(f"- {dump_json_line(text)}" for text in texts)])


def render_applicable_canned(
    levels: Sequence[Sequence[CannedResponse]], data: Mapping[str, Any], context: Any, interpretation: Interpretation
) -> list[str]:
    """Return the texts of all canned responses whose values are known and whose condition is true."""
    applicable = [
        each
        for level in levels
        for each in level
        if each.condition is None or each.condition in interpretation.true_conditions
    ]
    ready, _ = fill_canned_responses(applicable, data, context)
    return [text for _, text in ready]


def select_strict_texts(
    levels: Sequence[Sequence[CannedResponse]],
    data: Mapping[str, Any],
    context: Any,
    interpretation: Interpretation,
    place: str,
) -> list[str]:
    """Return the allowed texts in strict mode: those for a true condition, of the nearest level that has any; else
    the texts without a condition of the nearest level that has any."""
    filled_levels = [fill_canned_responses(level, data, context) for level in levels]
    true = interpretation.true_conditions
    conditional = [[text for each, text in ready if each.condition in true] for ready, _ in filled_levels]
    unconditional = [[text for each, text in ready if each.condition is None] for ready, _ in filled_levels]
    for texts in (*conditional, *unconditional):
        if texts:
            return list(dict.fromkeys(texts))
    missing_names = [name for _, missing in filled_levels for name in missing]
    raise CannedResponseError(place, list(dict.fromkeys(missing_names)))


def build_fixed_reply(text: str) -> Callable[..., ChatReply]:
    """Return a chat function that always replies with this text."""

    def reply(model: str, messages: Any, system: str | None, tools: Any) -> ChatReply:
        return ChatReply(text=text)

    return reply
