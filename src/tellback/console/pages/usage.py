"""Usage: what models were asked for, and what that cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from nicegui import ui

from tellback.console import widgets
from tellback.console.frame import console_page
from tellback.console.seat import Seat
from tellback.types.jobs import UsageRecord
from tellback.types.times import utc_now

PATH = "/usage"
DAYS = 30
MOST_CALLS = 10_000
MOST_CONVERSATIONS = 200
MOST_MESSAGES = 500
PIECE = 1_000
MOST_DAYS = 400
"""Bounds of what one look adds up: it says so when they are reached."""

ANSWER = "answer"
PURPOSES = {
    ANSWER: "Answers in conversations",
    "extraction": "Finding memories",
    "reconciliation": "Comparing memories",
    "summary": "Summaries",
}
QUIET = "#8a8a8a"
"""Readable on light and on dark."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a model."""

    at: datetime
    purpose: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: float | None


@console_page(PATH, "Usage")
async def usage(seat: Seat) -> None:
    """Calls, tokens and cost over time."""
    await Usage(seat).build()


class Usage:
    """The page."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._round = 0

    async def build(self) -> None:
        """Show it."""
        seat, asked = self._seat, self._seat.query
        again = seat.doing(self._search)
        first = (utc_now() - timedelta(days=DAYS - 1)).date().isoformat()
        with widgets.box("line"):
            self._since = widgets.day_field("From", asked.get("since", first), again).classes("some")
            self._until = widgets.day_field("To", asked.get("until"), again).classes("some")
            self._everyone = ui.switch("Of all users of this app", on_change=again)
            self._everyone.set_visibility(seat.caller.is_admin)
        self._place = widgets.box("stack").props('role=region aria-label="Usage" aria-live=polite')
        await self._show()

    async def _search(self) -> None:
        link = self._seat.link(PATH, since=self._since.value or "", until=self._until.value or None)
        ui.navigate.history.replace(link)
        await self._show()

    async def _show(self) -> None:
        self._round += 1
        this = self._round
        since, until = widgets.day_start(self._since.value), widgets.day_end(self._until.value)
        is_everyones = bool(self._everyone.value)
        memory, is_cut = await self._memory(since, until, is_everyones)
        answers: list[Call] = []
        if not is_everyones:
            answers, too_many = await self._answers(since, until)
            is_cut = is_cut or too_many
        if this != self._round:
            return
        self._place.clear()
        with self._place:
            _shown(self._seat, [*memory, *answers], since, until)
            _said(is_everyones, is_cut)

    async def _memory(
        self, since: datetime | None, until: datetime | None, is_everyones: bool
    ) -> tuple[list[Call], bool]:
        """Calls for memory, and whether there are more than are added up."""
        seat, found = self._seat, list[UsageRecord]()
        of: dict[str, Any] = {}
        ask: Callable[..., Any] = seat.user.admin.usage
        if is_everyones:
            seat.require_admin()
            ask, of = seat.rc.usage, {"tenant_id": seat.user.scope.tenant_id, "app_id": seat.user.scope.app_id}
        before = None
        while len(found) < MOST_CALLS:
            page = await ask(since, until, limit=PIECE, before=before, **of)
            found += page
            if len(page) < PIECE:
                return [_call(record) for record in found], False
            before = page[-1].id
        return [_call(record) for record in found], True

    async def _answers(self, since: datetime | None, until: datetime | None) -> tuple[list[Call], bool]:
        """What messages of the newest conversations say that they cost, and whether there are more of them."""
        log, found = self._seat.user.conversations, list[Call]()
        talks = await log.list(limit=MOST_CONVERSATIONS)
        is_cut = len(talks) == MOST_CONVERSATIONS
        for talk in talks:
            if (since and talk.updated_at < since) or (until and talk.created_at > until):
                continue
            messages = await log.raw_turns(talk.id, limit=MOST_MESSAGES, include_hidden=True)
            is_cut = is_cut or len(messages) == MOST_MESSAGES
            for message in messages:
                at, used = message.created_at, message.usage
                if used is None or (since and at < since) or (until and at > until):
                    continue
                model = used.model or message.model or "unnamed"
                tokens = (used.input_tokens or 0, used.output_tokens or 0)
                found.append(Call(at, ANSWER, model, *tokens, used.cost_usd))
        return found, is_cut


def _call(record: UsageRecord) -> Call:
    tokens = (record.input_tokens, record.output_tokens)
    return Call(record.created_at, record.purpose, record.model or "unnamed", *tokens, record.cost_usd)


def _shown(seat: Seat, calls: list[Call], since: datetime | None, until: datetime | None) -> None:
    if not calls:
        how = (
            "Calls are counted when a model answers in a chat or reads a conversation. Without a model set up there are"
            " none, and nothing is spent."
        )
        with widgets.empty("query_stats", "No model was called in this time.", how):
            widgets.link_button("Start a chat", "chat", seat.link("/"))
        return
    cost = sum(call.cost or 0.0 for call in calls)
    tokens = sum(call.input_tokens + call.output_tokens for call in calls)
    with widgets.box("line"):
        _figure("Calls", f"{len(calls):,}")
        _figure("Tokens", f"{tokens:,}")
        _figure("Cost", _dollars(cost))
    days = _days(calls, since, until)
    widgets.title("Tokens a day, by purpose")
    _plot(days, calls, lambda call: PURPOSES.get(call.purpose, call.purpose), _tokens)
    if any(call.cost for call in calls):
        widgets.title("Cost a day in dollars, by model")
        _plot(days, calls, lambda call: call.model, lambda call: call.cost or 0.0)
    widgets.title("Added up")
    _totals(calls)


def _tokens(call: Call) -> float:
    return call.input_tokens + call.output_tokens


def _figure(name: str, value: str) -> None:
    with widgets.box("card", "stack", "tight").style("width: auto; flex: 1 1 8.5rem"):
        widgets.quiet(name)
        ui.label(value).style("font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums")


def _dollars(cost: float) -> str:
    return f"${cost:,.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"


def _days(calls: Iterable[Call], since: datetime | None, until: datetime | None) -> list[date]:
    """Every day that is asked about, also those without a call, unless they are too many to be seen."""
    found = sorted({call.at.astimezone(UTC).date() for call in calls})
    first = found[0] if since is None else since.date()
    last = max(found[-1], min(utc_now(), until or utc_now()).date())
    length = (last - first).days + 1
    return found if length > MOST_DAYS else [first + timedelta(days=number) for number in range(length)]


def _plot(days: list[date], calls: list[Call], of: Callable[[Call], str], value: Callable[[Call], float]) -> None:
    sums: dict[str, dict[date, float]] = defaultdict(lambda: defaultdict(float))
    for call in calls:
        sums[of(call)][call.at.astimezone(UTC).date()] += value(call)
    names = sorted(sums, key=lambda name: -sum(sums[name].values()))
    text = {"color": QUIET}
    line = {"lineStyle": {"color": "rgba(127, 127, 127, .3)"}}
    options = {
        # On the canvas: a model's name may hold any characters, and tooltips are markup otherwise.
        "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True},
        "legend": {"top": 0, "type": "scroll", "textStyle": text, "data": names},
        "grid": {"left": 8, "right": 12, "top": 40, "bottom": 8, "containLabel": True},
        "xAxis": {"type": "category", "data": [f"{day.day} {day:%b}" for day in days], "axisLabel": text},
        "yAxis": {"type": "value", "axisLabel": text, "splitLine": line},
        "series": [
            {
                "name": name,
                "type": "bar",
                "stack": "all",
                "barMaxWidth": 36,
                "data": [round(sums[name][day], 6) for day in days],
            }
            for name in names
        ],
        "animation": False,
    }
    chart = ui.echart(options).style("height: 16rem; width: 100%")
    chart.props("role=img")
    chart.props["aria-label"] = f"A bar for each day: {', '.join(names)}. The table below has the sums."


def _totals(calls: list[Call]) -> None:
    groups: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in calls:
        groups[call.purpose, call.model].append(call)
    rows = []
    for (purpose, model), of in sorted(groups.items(), key=lambda each: -sum(map(_tokens, each[1]))):
        priced = [call.cost for call in of if call.cost is not None]
        cost = "no price" if not priced else _dollars(sum(priced))
        if priced and len(priced) < len(of):
            cost += f" ({len(of) - len(priced)} without a price)"
        tokens = (f"{sum(call.input_tokens for call in of):,}", f"{sum(call.output_tokens for call in of):,}")
        rows.append((PURPOSES.get(purpose, purpose), model, f"{len(of):,}", *tokens, cost))
    heads = ("Purpose", "Model", "Calls", "Tokens in", "Tokens out", "Cost")
    widgets.table(heads, rows, frozenset({2, 3, 4, 5}))


def _said(is_everyones: bool, is_cut: bool) -> None:
    if is_everyones:
        what = (
            "Counted are calls for memory of all users of this app. Answers in conversations are counted user by user."
        )
    else:
        what = "Counted are calls for memory, and answers in conversations whose model told what it used."
    if is_cut:
        what += (
            f" There is more than is added up here: at most {MOST_CALLS:,} calls for memory, and the last"
            f" {MOST_MESSAGES} messages of each of the newest {MOST_CONVERSATIONS} conversations. Choose fewer days."
        )
    widgets.quiet(f"{what} Days are those of UTC.")
