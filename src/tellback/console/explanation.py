"""The dialog "Why this answer" (context, memories with scores, cost) and the card with an agent's session state."""

from __future__ import annotations

from nicegui import ui

from tellback.agent import Agent
from tellback.agent.sessions.session import SessionState
from tellback.chat.offline import is_offline
from tellback.chat_backends import BackendReply
from tellback.console import atoms, widgets
from tellback.console.context import PageContext
from tellback.console.widgets import code_block, text_label
from tellback.types import ChatUsage
from tellback.types.conversations import StoredMessage
from tellback.types.memory import Atom

MAX_RECALLED_SHOWN = 8
"""How many recalled memories are listed below an answer."""

ACTION_LABELS = {
    "skipped": "Skipped",
    "ran": "Tool ran",
    "kept": "Earlier tool result used",
    "failed": "Tool failed",
    "waits": "Waiting for approval",
    "speaks": "Agent answers",
    "ended": "Route completed",
}
CALL_LABELS = {
    "understand": "understand the message",
    "choose": "choose an answer",
    "reply": "write the answer",
}
STOP_LABELS = {
    "end_turn": "Answer complete",
    "stop_sequence": "Answer complete",
    "max_tokens": "Answer incomplete: it reached the maximum length",
    "tool_use": "Stopped to call a tool",
    "refusal": "The model refused to answer",
    "pause_turn": "Paused by the provider",
}


class SessionCard:
    """A card with the state of the session, redrawn after each answer."""

    def __init__(self, ctx: PageContext, agent: str) -> None:
        self._ctx = ctx
        self._agent = agent
        self._root = widgets.box("card", "stack", "tight", tag="section").props('aria-label="Session"')

    def show(self, session: SessionState | None) -> None:
        """Show a session; None means that it has not started."""
        self._root.clear()
        with self._root:
            with widgets.box("line"):
                show_state(session, self._ctx.agents.get(self._agent))
                with widgets.box("actions"):
                    ui.link("View routes", self._ctx.link("/routes", agent=self._agent)).classes("go quiet")
            if session is not None:
                show_gathered(session)


def show_state(session: SessionState | None, agent: Agent | None) -> None:
    """Show the current route and state of a session, or that its last route is completed."""
    route, state = (None, None) if session is None else (session.current_route, session.current_state)
    tooltip = "A route is a task of the agent. It starts when a message matches its conditions."
    completed = None if session is None or route is not None else _last_completed_title(session, agent)
    if completed is not None:
        widgets.chip(f"{completed}: completed", "good", tooltip)
    else:
        widgets.chip("no active route" if route is None else route.title, "" if route is None else "good", tooltip)
    if state is not None:
        widgets.muted(widgets.truncate(state.description or state.id, 120))


def _last_completed_title(session: SessionState, agent: Agent | None) -> str | None:
    if agent is None or not session.route_history or not session.route_history[-1].completed:
        return None
    titles = {route.id: route.title for route in agent.routes}
    return titles.get(session.route_history[-1].route_id)


def show_gathered(session: SessionState) -> None:
    """Show the gathered values by field."""
    if session.extracted:
        widgets.pairs(
            *(
                (widgets.format_field_name(name), widgets.format_plain_value(value))
                for name, value in session.extracted.items()
            )
        )


def citation_links(ctx: PageContext, reply: BackendReply) -> list[tuple[str, str]]:
    """Return the address and text for each citation number of an answer.

    A citation links to the source message of its memory. A memory without a source message links to its own page.
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


def show_recalled(ctx: PageContext, reply: BackendReply) -> None:
    """Show the recalled memories of an answer as a collapsed list of links."""
    recalled = reply.result.atoms_used
    if not recalled:
        return
    title = f"{widgets.format_count(len(recalled), 'memory', 'memories')} recalled"
    if reply.cited:
        title += f", {len(set(reply.cited))} quoted"
    with (
        widgets.box("full"),
        ui.expansion(title, icon="psychology").classes("tool").props("dense dense-toggle"),
        widgets.box("stack", "tight"),
    ):
        for atom in recalled[:MAX_RECALLED_SHOWN]:
            with widgets.box("line"):
                link = ui.link(widgets.truncate(atom.text, 160), ctx.link("/atom", id=atom.id))
                link.classes("go said").props("dir=auto")
                widgets.muted(atoms.format_validity(atom))
        if len(recalled) > MAX_RECALLED_SHOWN:
            widgets.muted(f"and {len(recalled) - MAX_RECALLED_SHOWN} more in “Why this answer”")


def open_explanation(ctx: PageContext, reply: BackendReply) -> None:
    """Open a dialog with the memories, route decisions, prompt and cost of an answer."""
    with widgets.dialog("Why this answer") as dialog:
        _show_memories(ctx, reply)
        _show_route(reply)
        _show_model_input(reply)
        _show_cost(reply.result.usage, reply.result.model_calls)
        widgets.close_button(dialog)


def open_stored_explanation(ctx: PageContext, message: StoredMessage) -> None:
    """Open a dialog with what is stored about an earlier answer."""
    with widgets.dialog("Why this answer") as dialog:
        usage = message.usage or ChatUsage()
        widgets.muted(
            "This answer was written before you opened this page. Its prompt was not stored, so it cannot be shown."
        )
        widgets.pairs(
            ("Answered", widgets.format_datetime(message.created_at)),
            ("Model", message.model or usage.model),
            ("Result", STOP_LABELS.get(message.stop_reason or "", message.stop_reason)),
            ("Trace ID", message.trace_id),
        )
        _show_cost(usage, 0)
        with widgets.box("line"):
            address = ctx.link("/conversations", id=message.conversation_id, message=message.id)
            widgets.page_link("Show in conversation", address)
        widgets.close_button(dialog)


def format_cost(usage: ChatUsage) -> str:
    """Format the model, tokens and cost as one line."""
    parts = ["no model" if is_offline(usage.model) else usage.model or ""]
    tokens = usage.total_tokens or (usage.input_tokens or 0) + (usage.output_tokens or 0)
    if tokens:
        parts.append(widgets.format_count(tokens, "token"))
    if usage.cost_usd:
        parts.append(f"${usage.cost_usd:.4f}")
    return " · ".join(filter(None, parts))


def _show_memories(ctx: PageContext, reply: BackendReply) -> None:
    context, used = reply.result.context, reply.result.atoms_used
    widgets.heading("Recalled memories" if used else "No memories recalled")
    if not used:
        query = None if context is None else context.recall_query
        widgets.muted(
            "Tellback did not search the memory for this answer."
            if query is None
            else "No stored memory matches the message."
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
                    widgets.chip("always in the prompt")
                atoms.show_category_chip(atom)
                widgets.muted(atoms.format_validity(atom))
            with widgets.box("line"):
                atoms.show_sources(ctx, atom)
            if atom.id in hits:
                atoms.show_score(hits[atom.id])
    if context is not None and context.hits_dropped:
        widgets.muted(
            f"Not used, because the prompt would be too long:"
            f" {widgets.format_count(context.hits_dropped, 'more memory', 'more memories')}."
        )


def _show_route(reply: BackendReply) -> None:
    trace = reply.result.trace
    if trace is None:
        return
    widgets.heading("Route decisions")
    widgets.muted("A route is a task of the agent. Its states are the steps.")
    if trace.route:
        text_label(f"Route choice: {trace.route}")
    if trace.scores:
        rows = [(title, f"{score:g}") for title, score in trace.scores.items()]
        widgets.table(("Route", "Score"), rows, frozenset({1}))
    if trace.walked:
        steps = [(step.state, f"{ACTION_LABELS.get(step.action, step.action)}: {step.why}") for step in trace.walked]
        widgets.table(("State", "What happened"), steps)
    for match in trace.guidelines:
        text_label(f"Guideline: {match.guideline.action} ({match.rationale})")
    for each in trace.rejected:
        text_label(f"Rejected value: {each.field} = {widgets.format_plain_value(each.value, 120)} ({each.problem})")
    for problem in trace.problems:
        text_label(f"Problem: {problem}")


def _show_model_input(reply: BackendReply) -> None:
    context, trace = reply.result.context, reply.result.trace
    if context is not None and (context.context_block or context.turns_used):
        offline = is_offline(reply.result.usage.model)
        widgets.heading("Context (not sent, because no model is set up)" if offline else "Context sent to the model")
        parts = [f"About {widgets.format_count(context.tokens_estimated, 'token')}"]
        if context.turns_used:
            parts.append(f"{widgets.format_count(context.turns_used, 'earlier turn')} of this conversation")
        if context.turns_dropped:
            parts.append(f"{widgets.format_count(context.turns_dropped, 'older turn')} left out")
        widgets.muted(", ".join(parts) + (" (more than the token budget)" if context.over_budget else ""))
        if context.recall_query:
            widgets.muted(f"Searched the memory for: {widgets.truncate(context.recall_query, 200)}")
        code_block(context.context_block)
    for number, call in enumerate(trace.calls if trace is not None else (), 1):
        title = f"Model call {number}: {CALL_LABELS.get(call.purpose, call.purpose)}"
        with ui.expansion(title).classes("full").props("dense dense-toggle"):
            if call.system:
                widgets.muted("System prompt")
                code_block(call.system)
            if call.text:
                widgets.muted("Response")
                code_block(call.text)


def _show_cost(usage: ChatUsage, calls: int) -> None:
    widgets.heading("Tokens and cost")
    if is_offline(usage.model):
        widgets.muted("No model was called: this answer only quotes memories.")
        return
    number = "{:,}".format
    widgets.pairs(
        ("Model", usage.model),
        ("Model calls", str(calls) if calls else None),
        ("Input tokens", number(usage.input_tokens) if usage.input_tokens is not None else None),
        ("Cached input tokens", number(usage.cached_tokens) if usage.cached_tokens else None),
        ("Output tokens", number(usage.output_tokens) if usage.output_tokens is not None else None),
        ("Reasoning tokens", number(usage.reasoning_tokens) if usage.reasoning_tokens else None),
        ("Cost", f"${usage.cost_usd:.6f}" if usage.cost_usd else None),
        ("Duration", f"{usage.latency_ms / 1000:.2f} s" if usage.latency_ms is not None else None),
    )
    if usage.input_tokens is None and usage.output_tokens is None:
        widgets.muted("There are no token counts: no model was called, or the provider did not report them.")
