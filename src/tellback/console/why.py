"""Why this answer: what the model was given, which memories were in it and how they were found, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from tellback.console import atoms, widgets
from tellback.console.parts import block, words
from tellback.console.seat import Seat
from tellback.console.talks import Answer
from tellback.types import ChatUsage
from tellback.types.conversations import StoredMessage
from tellback.types.memory import Atom


def addresses(seat: Seat, answer: Answer) -> list[tuple[str, str]]:
    """Where the numbers in an answer lead: to the messages in which the memories were said, with their texts.

    A memory that somebody wrote, and that was never said, has a page of its own.
    """
    known = {atom.id: atom for atom in _atoms(answer)}
    return [(_source(seat, known.get(id), id), known[id].text if id in known else "") for id in answer.cited]


def _source(seat: Seat, atom: Atom | None, id: str) -> str:
    for each in atom.citations if atom is not None else ():
        if each.message_ids:
            return seat.link("/conversations", id=each.conversation_id, message=each.message_ids[0])
    return seat.link("/atom", id=id)


def show_why(seat: Seat, answer: Answer) -> None:
    """Open a dialog with it all."""
    with widgets.dialog("Why this answer") as opened:
        _memories(seat, answer)
        _route(answer)
        _given(answer)
        _cost(answer.usage, answer.model_calls)
        with widgets.box("line").style("justify-content: flex-end"):
            ui.button("Close", on_click=opened.close).props("flat no-caps autofocus")


def show_stored_why(seat: Seat, message: StoredMessage) -> None:
    """Open a dialog with what is kept of an answer that was given before."""
    with widgets.dialog("Why this answer") as opened:
        usage = message.usage or ChatUsage()
        widgets.quiet("It was given before this page was opened: what the model was given then is not kept.")
        widgets.pairs(
            ("Given", widgets.moment(message.created_at)),
            ("Model", message.model or usage.model),
            ("Ended by", message.stop_reason),
            ("Trace", message.trace_id),
        )
        _cost(usage, 0)
        with widgets.box("line"):
            address = seat.link("/conversations", id=message.conversation_id, message=message.id)
            widgets.go("Show it in its conversation", address)
        with widgets.box("line").style("justify-content: flex-end"):
            ui.button("Close", on_click=opened.close).props("flat no-caps autofocus")


def cost_line(usage: ChatUsage) -> str:
    """Which model it was and what it took, in a line."""
    parts = [usage.model or ""]
    tokens = usage.total_tokens or (usage.input_tokens or 0) + (usage.output_tokens or 0)
    if tokens:
        parts.append(widgets.counted(tokens, "token"))
    if usage.cost_usd:
        parts.append(f"${usage.cost_usd:.4f}")
    return " · ".join(filter(None, parts))


def _atoms(answer: Answer) -> Sequence[Atom]:
    return () if answer.context is None else answer.context.atoms_used


def _memories(seat: Seat, answer: Answer) -> None:
    context = answer.context
    used = _atoms(answer)
    widgets.title("Memories it was given" if used else "No memory was used")
    if not used:
        asked = None if context is None else context.recall_query
        widgets.quiet(
            "Nothing was recalled for this message."
            if asked is None
            else "Nothing that is remembered fits the message."
        )
        return
    hits = {hit.atom.id: hit for hit in (context.hits if context is not None else ())}
    for atom in used:
        with widgets.box("card", "stack", "tight", tag="article"):
            with ui.link(target=seat.link("/atom", id=atom.id)).classes("go plain"):
                words(atom.text)
            with widgets.box("line"):
                if atom.id in answer.cited:
                    widgets.chip(f"cited as [{answer.cited.index(atom.id) + 1}]", "good")
                if atom.id not in hits:
                    widgets.chip("always given")
                widgets.chip(atoms.category_of(atom))
                widgets.quiet(atoms.held(atom))
            with widgets.box("line"):
                atoms.sources(seat, atom)
            if atom.id in hits:
                atoms.score(hits[atom.id])
    if context is not None and context.hits_dropped:
        widgets.quiet(
            f"{widgets.counted(context.hits_dropped, 'more memory', 'more memories')} did not fit the budget."
        )


def _route(answer: Answer) -> None:
    trace = answer.trace
    if trace is None:
        return
    widgets.title("The way through its routes")
    if trace.route:
        words(trace.route)
    if trace.scores:
        rows = [(title, f"{score:g}") for title, score in trace.scores.items()]
        widgets.table(("Route", "Score"), rows, frozenset({1}))
    if trace.walked:
        widgets.table(("State", "What happened"), [(step.state, f"{step.action}: {step.why}") for step in trace.walked])
    for match in trace.guidelines:
        words(f"Guideline: {match.guideline.action} ({match.rationale})")
    for each in trace.rejected:
        words(f"Not taken: {each.field} = {each.value!r:.120} ({each.problem})")
    for problem in trace.problems:
        words(f"Problem: {problem}")


def _given(answer: Answer) -> None:
    context = answer.context
    if context is not None and (context.context_block or context.turns_used):
        widgets.title("What the model was given")
        parts = [
            f"about {widgets.counted(context.tokens_estimated, 'token')}",
            f"{widgets.counted(context.turns_used, 'turn')} of this conversation",
        ]
        if context.turns_dropped:
            parts.append(f"{widgets.counted(context.turns_dropped, 'older turn')} left out")
        widgets.quiet(", ".join(parts) + (": more than the budget" if context.over_budget else ""))
        if context.recall_query:
            widgets.quiet(f"Recalled by: {widgets.cut(context.recall_query, 200)}")
        block(context.context_block)
    for number, call in enumerate(answer.trace.calls if answer.trace is not None else (), 1):
        with ui.expansion(f"Model call {number}: {call.purpose}").classes("full").props("dense dense-toggle"):
            if call.system:
                widgets.quiet("System prompt")
                block(call.system)
            if call.text:
                widgets.quiet("What it said")
                block(call.text)


def _cost(usage: ChatUsage, calls: int) -> None:
    widgets.title("What it took")
    number = "{:,}".format
    widgets.pairs(
        ("Model", usage.model),
        ("Model calls", str(calls) if calls else None),
        ("Tokens read", number(usage.input_tokens) if usage.input_tokens is not None else None),
        ("of them cached", number(usage.cached_tokens) if usage.cached_tokens else None),
        ("Tokens written", number(usage.output_tokens) if usage.output_tokens is not None else None),
        ("of them thinking", number(usage.reasoning_tokens) if usage.reasoning_tokens else None),
        ("Cost", f"${usage.cost_usd:.6f}" if usage.cost_usd else None),
        ("Time", f"{usage.latency_ms / 1000:.2f} s" if usage.latency_ms is not None else None),
    )
    if usage.input_tokens is None and usage.output_tokens is None:
        widgets.quiet("No tokens: no model was asked, or its provider does not count them.")
