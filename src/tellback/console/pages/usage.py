"""The page Usage: model calls, tokens and cost over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from nicegui import ui

from tellback.chat.offline import OFFLINE
from tellback.console import widgets
from tellback.console.context import PageContext
from tellback.console.layout import console_page
from tellback.types.ids import utc_now
from tellback.types.jobs import UsageRecord

PATH = "/usage"
DEFAULT_DAYS = 30
MAX_CALLS = 10_000
MAX_CONVERSATIONS = 200
MAX_MESSAGES = 500
USAGE_PAGE_SIZE = 1_000
MAX_CHART_DAYS = 400
"""Limits of one page view. The page says when a limit is reached."""

ANSWER_PURPOSE = "answer"
PURPOSE_LABELS = {
    ANSWER_PURPOSE: "Answers",
    "extraction": "Memory extraction",
    "reconciliation": "Comparing new memories with old ones",
    "summary": "Summaries",
}
CHART_TEXT_COLOR = "#8a8a8a"
"""A color that is readable on light and dark backgrounds."""


@dataclass(frozen=True, slots=True)
class UsageEntry:
    """One model call."""

    at: datetime
    purpose: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: float | None

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class UsagePage:
    """Model calls, tokens and cost over time."""

    def __init__(self, ctx: PageContext) -> None:
        self._ctx = ctx
        self._request_number = 0

    async def build(self) -> None:
        ctx, query = self._ctx, self._ctx.query
        on_search = ctx.guard(self._search)
        first = (utc_now() - timedelta(days=DEFAULT_DAYS - 1)).date().isoformat()
        with widgets.box("line"):
            self._since_field = widgets.date_field("From", query.get("since", first), on_search).classes("some")
            self._until_field = widgets.date_field("To", query.get("until"), on_search).classes("some")
            self._everyone_switch = ui.switch("All users of this app", on_change=on_search)
            self._everyone_switch.set_visibility(ctx.caller.is_admin)
        self._content_box = widgets.box("stack").props('role=region aria-label="Usage" aria-live=polite')
        await self._show_content()

    async def _search(self) -> None:
        link = self._ctx.link(PATH, since=self._since_field.value or "", until=self._until_field.value or None)
        ui.navigate.history.replace(link)
        await self._show_content()

    async def _show_content(self) -> None:
        self._request_number += 1
        request_number = self._request_number
        since, until = widgets.parse_day_start(self._since_field.value), widgets.parse_day_end(self._until_field.value)
        is_for_all_users = bool(self._everyone_switch.value)
        memory_calls, is_truncated = await self._load_memory_calls(since, until, is_for_all_users)
        answer_calls: list[UsageEntry] = []
        if not is_for_all_users:
            answer_calls, is_partial = await self._load_answer_calls(since, until)
            is_truncated = is_truncated or is_partial
        if request_number != self._request_number:
            return
        self._content_box.clear()
        with self._content_box:
            model_calls = [call for call in answer_calls if call.model != OFFLINE]
            _show_calls(self._ctx, [*memory_calls, *model_calls], since, until)
            _show_note(is_for_all_users, is_truncated, len(answer_calls) - len(model_calls))

    async def _load_memory_calls(
        self, since: datetime | None, until: datetime | None, is_for_all_users: bool
    ) -> tuple[list[UsageEntry], bool]:
        """Load the model calls for memory, and whether there are more than `MAX_CALLS`."""
        ctx, found = self._ctx, list[UsageEntry]()
        filters: dict[str, Any] = {}
        list_usage: Callable[..., Any] = ctx.user.admin.usage
        if is_for_all_users:
            ctx.caller.require_admin()
            list_usage, filters = ctx.tb.usage, {"tenant_id": ctx.user.scope.tenant_id, "app_id": ctx.user.scope.app_id}
        before, has_more = None, True
        while has_more and len(found) < MAX_CALLS:
            page = await list_usage(since, until, limit=USAGE_PAGE_SIZE, before=before, **filters)
            found += map(_entry_from_record, page)
            before, has_more = page[-1].id if page else None, len(page) == USAGE_PAGE_SIZE
        return found, has_more

    async def _load_answer_calls(self, since: datetime | None, until: datetime | None) -> tuple[list[UsageEntry], bool]:
        """Load the model calls for answers from the newest conversations, and whether the limits cut some off."""
        conversation_log, found = self._ctx.user.conversations, list[UsageEntry]()
        conversations = await conversation_log.list(limit=MAX_CONVERSATIONS)
        is_truncated = len(conversations) == MAX_CONVERSATIONS
        for conversation in conversations:
            if (since and conversation.updated_at < since) or (until and conversation.created_at > until):
                continue
            messages = await conversation_log.raw_turns(conversation.id, limit=MAX_MESSAGES, include_hidden=True)
            is_truncated = is_truncated or len(messages) == MAX_MESSAGES
            for message in messages:
                created_at, usage = message.created_at, message.usage
                if usage is None or (since and created_at < since) or (until and created_at > until):
                    continue
                model = usage.model or message.model or "unknown"
                tokens = (usage.input_tokens or 0, usage.output_tokens or 0)
                found.append(UsageEntry(created_at, ANSWER_PURPOSE, model, *tokens, usage.cost_usd))
        return found, is_truncated


console_page(PATH, "Usage")(lambda ctx: UsagePage(ctx).build())


def _entry_from_record(record: UsageRecord) -> UsageEntry:
    tokens = (record.input_tokens, record.output_tokens)
    return UsageEntry(record.created_at, record.purpose, record.model or "unknown", *tokens, record.cost_usd)


def _show_calls(ctx: PageContext, calls: list[UsageEntry], since: datetime | None, until: datetime | None) -> None:
    if not calls:
        hint = "Calls are counted when a model answers or extracts memories. Answers without a model cost nothing."
        with widgets.empty_state("query_stats", "No model calls in this period.", hint):
            widgets.link_button("Start a chat", "chat", ctx.link("/"))
        return
    cost = sum(call.cost or 0.0 for call in calls)
    with widgets.box("line"):
        _show_figure("Calls", f"{len(calls):,}")
        _show_figure("Tokens", f"{sum(call.tokens for call in calls):,}")
        _show_figure("Cost", _format_dollars(cost))
    days = _chart_days(calls, since, until)
    widgets.heading("Tokens per day by purpose")
    _show_chart(days, calls, lambda call: PURPOSE_LABELS.get(call.purpose, call.purpose), lambda call: call.tokens)
    if any(call.cost for call in calls):
        widgets.heading("Cost per day by model (USD)")
        _show_chart(days, calls, lambda call: call.model, lambda call: call.cost or 0.0)
    widgets.heading("Totals")
    _show_totals(calls)


def _show_figure(name: str, value: str) -> None:
    with widgets.box("card", "stack", "tight").style("width: auto; flex: 1 1 8.5rem"):
        widgets.muted(name)
        ui.label(value).style("font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums")


def _format_dollars(cost: float) -> str:
    return f"${cost:,.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"


def _chart_days(calls: Iterable[UsageEntry], since: datetime | None, until: datetime | None) -> list[date]:
    """Return the days of the chart: all days of the period, or only days with calls if the period is too long."""
    found = sorted({call.at.astimezone(UTC).date() for call in calls})
    first = found[0] if since is None else since.date()
    last = max(found[-1], min(utc_now(), until or utc_now()).date())
    length = (last - first).days + 1
    return found if length > MAX_CHART_DAYS else [first + timedelta(days=number) for number in range(length)]


def _show_chart(
    days: list[date],
    calls: list[UsageEntry],
    series_name: Callable[[UsageEntry], str],
    value: Callable[[UsageEntry], float],
) -> None:
    sums: dict[str, dict[date, float]] = defaultdict(lambda: defaultdict(float))
    for call in calls:
        sums[series_name(call)][call.at.astimezone(UTC).date()] += value(call)
    names = sorted(sums, key=lambda name: -sum(sums[name].values()))
    text = {"color": CHART_TEXT_COLOR}
    line = {"lineStyle": {"color": "rgba(127, 127, 127, .3)"}}
    options = {
        # richText draws tooltips on the canvas; HTML tooltips would interpret markup in a model's name.
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
    chart.props["aria-label"] = f"Bar chart per day: {', '.join(names)}. The table below has the totals."


def _show_totals(calls: list[UsageEntry]) -> None:
    groups: dict[tuple[str, str], list[UsageEntry]] = defaultdict(list)
    for call in calls:
        groups[call.purpose, call.model].append(call)
    rows = []
    for (purpose, model), group in sorted(groups.items(), key=lambda each: -sum(call.tokens for call in each[1])):
        priced = [call.cost for call in group if call.cost is not None]
        cost = "price unknown" if not priced else _format_dollars(sum(priced))
        if priced and len(priced) < len(group):
            cost += f" ({len(group) - len(priced)} calls with unknown price)"
        tokens = (f"{sum(call.input_tokens for call in group):,}", f"{sum(call.output_tokens for call in group):,}")
        rows.append((PURPOSE_LABELS.get(purpose, purpose), model, f"{len(group):,}", *tokens, cost))
    columns = ("Purpose", "Model", "Calls", "Tokens in", "Tokens out", "Cost")
    widgets.table(columns, rows, frozenset({2, 3, 4, 5}))


def _show_note(is_for_all_users: bool, is_truncated: bool, offline_count: int) -> None:
    if is_for_all_users:
        sentence = (
            "Counted: memory extraction for all users of this app. Not counted: answers. To see the answers of this"
            " user, turn the switch off"
        )
    else:
        sentence = (
            "This page counts answers and memory extraction. It leaves out answers for which no tokens were reported"
        )
    if offline_count:
        sentence += f". {widgets.format_count(offline_count, 'answer')} without a model cost nothing"
    if is_truncated:
        sentence += (
            f". Older calls may be missing: this page reads only the newest data ({MAX_CALLS:,} calls for memory,"
            f" and {MAX_CONVERSATIONS} conversations with {MAX_MESSAGES} messages each)"
        )
    widgets.muted(f"{sentence}. Days are in UTC.")
