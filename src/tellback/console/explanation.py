"""The dialog "Why this answer" (context, memories with scores, cost) and the card with an agent's session state."""

from __future__ import annotations

from nicegui import ui

from tellback.agent.sessions.session import SessionState
from tellback.chat_backends import BackendReply
from tellback.console import atoms, widgets
from tellback.console.context import PageContext
from tellback.console.widgets import code_block, text_label
from tellback.types import ChatUsage
from tellback.types.conversations import StoredMessage
from tellback.types.memory import Atom


class SessionCard:
    """A card that is shown anew after each answer."""

    def __init__(self, ctx: PageContext, agent: str) -> None:
        self._ctx = ctx
        self._agent = agent
        self._root = widgets.box("card", "stack", "tight", tag="section").props('aria-label="Where it stands"')

    def show(self, session: SessionState | None) -> None:
        """Show a session; None is one that has not begun."""
        self._root.clear()
        with self._root:
            with widgets.box("line"):
                show_state(session)
                with widgets.box("actions"):
                    ui.link("Show the routes", self._ctx.link("/routes", agent=self._agent)).classes("go quiet")
            if session is not None:
                show_gathered(session)


def show_state(session: SessionState | None) -> None:
    """Where a session stands: its route and state."""
    route, state = (None, None) if session is None else (session.current_route, session.current_state)
    widgets.chip("no route yet" if route is None else route.title, "" if route is None else "good")
    if state is not None:
        widgets.muted(widgets.truncate(state.description or state.id, 120))


def show_gathered(session: SessionState) -> None:
    """What the user has said so far, by field."""
    if session.extracted:
        widgets.pairs(
            *((name, widgets.truncate(widgets.format_value(value), 300)) for name, value in session.extracted.items())
        )


def citation_links(ctx: PageContext, reply: BackendReply) -> list[tuple[str, str]]:
    """Where the numbers in an answer lead: to the messages in which the memories were said, with their texts.

    A memory that somebody wrote, and that was never said, has a page of its own.
    """
    atoms_by_id = {atom.id: atom for atom in reply.result.atoms_used}
    return [
        (_source_link(ctx, atoms_by_id.get(id), id), atoms_by_id[id].text if id in atoms_by_id else "")
        for id in reply.cited
    ]


def _source_link(ctx: PageContext, atom: Atom | None, id: str) -> str:
    for each in atom.citations if atom is not None else ():
        if each.message_ids:
            return ctx.link("/conversations", id=each.conversation_id, message=each.message_ids[0])
    return ctx.link("/atom", id=id)


def open_explanation(ctx: PageContext, reply: BackendReply) -> None:
    """Open a dialog with it all."""
    with widgets.dialog("Why this answer") as dialog:
        _show_memories(ctx, reply)
        _show_route(reply)
        _show_model_input(reply)
        _show_cost(reply.result.usage, reply.result.model_calls)
        widgets.close_button(dialog)


def open_stored_explanation(ctx: PageContext, message: StoredMessage) -> None:
    """Open a dialog with what is kept of an answer that was given before."""
    with widgets.dialog("Why this answer") as dialog:
        usage = message.usage or ChatUsage()
        widgets.muted("It was given before this page was opened: what the model was given then is not kept.")
        widgets.pairs(
            ("Given", widgets.format_datetime(message.created_at)),
            ("Model", message.model or usage.model),
            ("Ended by", message.stop_reason),
            ("Trace", message.trace_id),
        )
        _show_cost(usage, 0)
        with widgets.box("line"):
            address = ctx.link("/conversations", id=message.conversation_id, message=message.id)
            widgets.page_link("Show it in its conversation", address)
        widgets.close_button(dialog)


def format_cost(usage: ChatUsage) -> str:
    """Which model it was and what it took, in a line."""
    parts = [usage.model or ""]
    tokens = usage.total_tokens or (usage.input_tokens or 0) + (usage.output_tokens or 0)
    if tokens:
        parts.append(widgets.format_count(tokens, "token"))
    if usage.cost_usd:
        parts.append(f"${usage.cost_usd:.4f}")
    return " · ".join(filter(None, parts))


def _show_memories(ctx: PageContext, reply: BackendReply) -> None:
    context, used = reply.result.context, reply.result.atoms_used
    widgets.heading("Memories it was given" if used else "No memory was used")
    if not used:
        query = None if context is None else context.recall_query
        widgets.muted(
            "Nothing was recalled for this message."
            if query is None
            else "Nothing that is remembered fits the message."
        )
        return
    hits = {hit.atom.id: hit for hit in (context.hits if context is not None else ())}
    for atom in used:
        with widgets.box("card", "stack", "tight", tag="article"):
            with ui.link(target=ctx.link("/atom", id=atom.id)).classes("go plain"):
                text_label(atom.text)
            with widgets.box("line"):
                if atom.id in reply.cited:
                    widgets.chip(f"cited as [{reply.cited.index(atom.id) + 1}]", "good")
                if atom.id not in hits:
                    widgets.chip("always given")
                widgets.chip(atoms.format_category(atom))
                widgets.muted(atoms.format_validity(atom))
            with widgets.box("line"):
                atoms.show_sources(ctx, atom)
            if atom.id in hits:
                atoms.show_score(hits[atom.id])
    if context is not None and context.hits_dropped:
        widgets.muted(
            f"{widgets.format_count(context.hits_dropped, 'more memory', 'more memories')} did not fit the budget."
        )


def _show_route(reply: BackendReply) -> None:
    trace = reply.result.trace
    if trace is None:
        return
    widgets.heading("The way through its routes")
    if trace.route:
        text_label(trace.route)
    if trace.scores:
        rows = [(title, f"{score:g}") for title, score in trace.scores.items()]
        widgets.table(("Route", "Score"), rows, frozenset({1}))
    if trace.walked:
        widgets.table(("State", "What happened"), [(step.state, f"{step.action}: {step.why}") for step in trace.walked])
    for match in trace.guidelines:
        text_label(f"Guideline: {match.guideline.action} ({match.rationale})")
    for each in trace.rejected:
        text_label(f"Not taken: {each.field} = {each.value!r:.120} ({each.problem})")
    for problem in trace.problems:
        text_label(f"Problem: {problem}")


def _show_model_input(reply: BackendReply) -> None:
    context, trace = reply.result.context, reply.result.trace
    if context is not None and (context.context_block or context.turns_used):
        widgets.heading("What the model was given")
        parts = [
            f"about {widgets.format_count(context.tokens_estimated, 'token')}",
            f"{widgets.format_count(context.turns_used, 'turn')} of this conversation",
        ]
        if context.turns_dropped:
            parts.append(f"{widgets.format_count(context.turns_dropped, 'older turn')} left out")
        widgets.muted(", ".join(parts) + (": more than the budget" if context.over_budget else ""))
        if context.recall_query:
            widgets.muted(f"Recalled by: {widgets.truncate(context.recall_query, 200)}")
        code_block(context.context_block)
    for number, call in enumerate(trace.calls if trace is not None else (), 1):
        with ui.expansion(f"Model call {number}: {call.purpose}").classes("full").props("dense dense-toggle"):
            if call.system:
                widgets.muted("System prompt")
                code_block(call.system)
            if call.text:
                widgets.muted("What it said")
                code_block(call.text)


def _show_cost(usage: ChatUsage, calls: int) -> None:
    widgets.heading("What it took")
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
        widgets.muted("No tokens: no model was asked, or its provider does not count them.")
