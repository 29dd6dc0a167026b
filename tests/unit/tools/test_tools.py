"""Tools: schemas from signatures, input validation, and dispatch that never raises."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime
import enum
import functools
import gc
import logging
import socket
import threading
import time
import weakref
from typing import Annotated, Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback import ConfigurationError, Tool, ToolCall, ToolResult, image_part, tool
from tellback.errors import ToolSchemaError
from tellback.tools import as_tool, dispatch, dispatch_all, tools_by_name
from tellback.tools.context import ToolUpdate, current_call


class Seat(enum.Enum):
    AISLE = "aisle"
    WINDOW = "window"


@dataclasses.dataclass
class Bag:
    kilos: float


class Passenger(pydantic.BaseModel):
    name: str
    bags: list[Bag] = []


def book(
    passenger: Passenger,
    day: datetime.date,
    seat: Seat = Seat.AISLE,
    kind: Literal["one-way", "return"] = "one-way",
    note: Annotated[str | None, pydantic.Field(description="Anything else.", max_length=20)] = None,
) -> str:
    """Book a flight.

    The seat is held for a day.

    Args:
        passenger: Who flies.
        day: When, as
            a date.
    """
    return f"{passenger.name} {day:%d.%m.} {seat.value} {kind} {note} {passenger.bags}"


async def run_tool(fn: Any, **input: Any) -> ToolResult:
    return await dispatch(ToolCall("c1", as_tool(fn).name, input), [fn])


def test_the_schema_is_built_from_hints_and_docstring() -> None:
    built = Tool.from_fn(book)
    assert built.description == "Book a flight.\n\nThe seat is held for a day."
    properties = built.parameters["properties"]
    assert built.parameters["required"] == ["passenger", "day"]
    assert properties["day"] == {"type": "string", "format": "date", "description": "When, as a date."}
    assert properties["kind"] == {"type": "string", "enum": ["one-way", "return"], "default": "one-way"}
    assert properties["note"]["description"] == "Anything else."
    assert properties["passenger"]["description"] == "Who flies."
    assert built.parameters["$defs"]["Seat"]["enum"] == ["aisle", "window"]
    assert "title" not in str(built.parameters)


@pytest.mark.parametrize(
    "doc",
    [
        "Do.\n\nArgs:\n    x: The x.",
        "Do.\n\n:param x: The x.",
        "Do.\n\nParameters\n----------\nx : int\n    The x.",
    ],
    ids=["google", "sphinx", "numpy"],
)
def test_every_common_docstring_style_is_read(doc: str) -> None:
    def do(x: int) -> None: ...

    do.__doc__ = doc
    built = Tool.from_fn(do)
    assert built.description == "Do."
    assert built.parameters["properties"]["x"]["description"] == "The x."


async def test_input_values_are_converted_to_the_parameter_types() -> None:
    result = await run_tool(
        book, passenger={"name": "Ada", "bags": [{"kilos": "7.5"}]}, day="2026-12-01", seat="window", note="veg"
    )
    assert result.content == "Ada 01.12. window one-way veg [Bag(kilos=7.5)]"
    assert not result.is_error


def test_a_decorated_function_can_still_be_called() -> None:
    @tool(name="renamed", description="Said otherwise.", timeout=3)
    def shout(text: str) -> str:
        return text.upper()

    assert shout("hi") == "HI"
    assert (shout.name, shout.description, shout.timeout) == ("renamed", "Said otherwise.", 3)


async def test_parameters_may_have_awkward_names_and_kinds() -> None:
    def odd(_hidden: int, schema: str, model_name: str, /, json: int = 1, *, title: str = "t", **more: Any) -> str:
        return f"{_hidden} {schema} {model_name} {json} {title} {more}"

    assert set(Tool.from_fn(odd).parameters["properties"]) == {"_hidden", "schema", "model_name", "json", "title"}
    result = await run_tool(odd, _hidden=1, schema="s", model_name="m", title="T", extra=2)
    assert result.content == "1 s m 1 T {'extra': 2}"


async def test_default_values_come_from_the_function() -> None:
    marker = object()

    def ask(x: Any = marker) -> str:
        return "default" if x is marker else "given"

    assert (await run_tool(ask)).content == "default"


async def test_methods_partials_and_callables_can_be_tools() -> None:
    class Counter:
        def __init__(self) -> None:
            self.total = 0

        def add(self, n: int) -> int:
            """Add."""
            self.total += n
            return self.total

        async def __call__(self, n: int) -> int:
            """Call."""
            return n

    counter = Counter()
    assert (await run_tool(counter.add, n=2)).content == "2"
    assert (await dispatch(ToolCall("c", "Counter", {"n": 5}), [counter])).content == "5"
    fixed = Tool.from_fn(functools.partial(counter.add, n=1), name="one")
    assert (await dispatch(ToolCall("c", "one", {}), [fixed])).content == "3"


@pytest.mark.parametrize(
    ("input", "problem"),
    [
        ({"x": "many"}, "x: Input should be a valid integer"),
        ({}, "x: Field required"),
        ({"x": 1, "z": 2}, "z: Extra inputs are not permitted"),
    ],
)
async def test_wrong_input_is_an_error_result_and_the_function_is_not_called(input: Any, problem: str) -> None:
    called = []

    def take(x: int) -> None:
        called.append(x)

    result = await run_tool(take, **input)
    assert result.is_error
    assert problem in result.content
    assert "call it again" in result.content
    assert called == []


async def test_an_unknown_tool_is_an_error_result_that_lists_the_known_ones() -> None:
    result = await dispatch(ToolCall("c1", "delete_all", {}), [book])
    assert result == ToolResult(
        "c1", "There is no tool called 'delete_all'. Available tools: book.", is_error=True, name="delete_all"
    )


async def test_a_failing_tool_is_an_error_result_and_its_traceback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("disk full")

    result = await run_tool(fail)
    assert (result.content, result.is_error) == ("fail failed: RuntimeError: disk full", True)
    assert "disk full" in caplog.text


async def test_a_tool_that_exceeds_its_timeout_is_an_error_result() -> None:
    cancelled = asyncio.Event()

    @tool(timeout=0.05)
    async def hang() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cancelled.set()

    @tool(timeout=0.05)
    def block() -> None:
        time.sleep(0.3)

    @tool(timeout=5)
    async def own_timeout() -> None:
        raise TimeoutError("the database")

    results = await dispatch_all([ToolCall("a", "hang"), ToolCall("b", "block")], [hang, block])
    assert [result.content for result in results] == [
        "hang did not finish within 0.05 seconds.",
        "block did not finish within 0.05 seconds.",
    ]
    assert cancelled.is_set()
    assert "the database" in (await run_tool(own_timeout)).content


async def test_sync_functions_run_off_the_event_loop_with_the_callers_context() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who")
    who.set("ada")
    main = threading.get_ident()

    def look() -> list[Any]:
        return [threading.get_ident() != main, who.get()]

    assert (await run_tool(look)).content == '[true,"ada"]'


async def test_calls_run_concurrently_and_results_keep_their_order() -> None:
    arrived: list[int] = []
    together = asyncio.Event()

    async def meet(n: int) -> int:
        arrived.append(n)
        if len(arrived) == 3:
            together.set()
        await asyncio.wait_for(together.wait(), 5)
        return n

    results = await dispatch_all([ToolCall(str(n), "meet", {"n": n}) for n in range(3)], [meet])
    assert [result.content for result in results] == ["0", "1", "2"]


async def test_cancelling_cancels_running_tools() -> None:
    started, stopped = asyncio.Event(), []

    async def wait(n: int) -> None:
        started.set()
        try:
            await asyncio.sleep(30)
        finally:
            stopped.append(n)

    calls = [ToolCall("a", "wait", {"n": 1}), ToolCall("b", "wait", {"n": 2})]
    task = asyncio.create_task(dispatch_all(calls, [wait]))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(stopped) == [1, 2]


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, "null"),
        ("text", "text"),
        ({"when": datetime.date(2026, 1, 2)}, '{"when":"2026-01-02"}'),
        (Passenger(name="Ada"), '{"name":"Ada","bags":[]}'),
        ([Bag(1.5)], '[{"kilos":1.5}]'),
        ("Grüße", "Grüße"),
        ({"g": "ü"}, '{"g":"ü"}'),
    ],
)
async def test_returned_values_are_converted_to_text(value: Any, content: str) -> None:
    async def give() -> Any:
        return value

    result = await run_tool(give)
    assert (result.content, result.value) == (content, value)


async def test_a_tool_may_return_message_parts_or_a_tool_result() -> None:
    picture = image_part(data=b"x", mime="image/png", name="a.png")

    async def show() -> Any:
        return picture

    async def refuse() -> Any:
        return ToolResult("ignored", "Not now.", is_error=True)

    result = await run_tool(show)
    assert (result.parts, result.content) == ((picture,), "[image: a.png]")
    assert await run_tool(refuse) == ToolResult("c1", "Not now.", is_error=True, name="refuse")


@dataclasses.dataclass
class Outcome:
    data: Any = None
    error: str | None = None


@pytest.mark.parametrize(
    "returned",
    [
        ToolResult(error="No seats left"),
        {"data": None, "error": "No seats left"},
        {"data": ["TP1"], "error": "No seats left", "meta": {}},
        {"error": "No seats left"},
        {"error": ValueError("No seats left")},
        Outcome(error="No seats left"),
        ToolUpdate({"error": "No seats left"}),
    ],
    ids=str,
)
async def test_a_returned_error_is_an_error_result(returned: Any) -> None:
    async def search() -> Any:
        return returned

    assert await run_tool(search) == ToolResult("c1", "No seats left", is_error=True, name="search")


async def test_a_returned_error_that_is_no_text_is_shown_as_json() -> None:
    async def search() -> Any:
        return {"data": None, "error": {"code": 409}}

    result = await run_tool(search)
    assert (result.is_error, result.content) == (True, '{"code":409}')


@pytest.mark.parametrize(
    "returned",
    [
        {"data": ["TP1"]},
        {"data": ["TP1"], "error": None},
        {"error": ""},
        {"error": "0.3%", "mean": 5},
        Outcome(["TP1"]),
    ],
    ids=str,
)
async def test_other_results_with_data_or_error_are_ordinary_values(returned: Any) -> None:
    async def measure() -> Any:
        return returned

    result = await run_tool(measure)
    assert (result.is_error, result.value) == (False, returned)


async def test_a_returned_tool_result_with_data_has_this_value() -> None:
    async def search() -> Any:
        return ToolResult(data=["TP1"])

    result = await run_tool(search)
    assert (result.is_error, result.value, result.content) == (False, ["TP1"], '["TP1"]')
    assert (ToolResult(data="TP1").content, ToolResult(data="TP1", content="one").content) == ("TP1", "one")


async def test_a_value_that_is_not_json_is_an_error_result() -> None:
    loop: list[Any] = []
    loop.append(loop)

    async def give() -> Any:
        return loop

    result = await run_tool(give)
    assert result.is_error
    assert "cannot be converted to JSON" in result.content


def test_schema_errors_contain_the_parameter_name() -> None:
    def send(where: socket.socket) -> None: ...

    with pytest.raises(ToolSchemaError, match=r"'send'.*parameter 'where'"):
        Tool.from_fn(send)

    def spread(*names: str) -> None: ...

    with pytest.raises(ToolSchemaError, match=r"\*names"):
        Tool.from_fn(spread)

    def unresolved(x: int) -> None: ...

    unresolved.__annotations__["x"] = "NotAnywhere"
    with pytest.raises(ToolSchemaError, match="NotAnywhere"):
        Tool.from_fn(unresolved)

    with pytest.raises(ToolSchemaError, match="lambda"):
        Tool.from_fn(lambda x: x)

    with pytest.raises(ToolSchemaError, match="64 letters"):
        Tool.from_fn(book, name="book a flight")


def test_two_tools_with_the_same_name_are_rejected() -> None:
    def other() -> None: ...

    with pytest.raises(ConfigurationError, match="Two tools are named 'book'"):
        tools_by_name([book, Tool.from_fn(other, name="book")])
    assert list(tools_by_name([book, book])) == ["book"]
    with pytest.raises(ConfigurationError, match="not a tool"):
        tools_by_name(["book"])  # type: ignore[list-item]


async def test_a_field_default_is_used() -> None:
    def pick(x: int = pydantic.Field(ge=1), y: int = pydantic.Field(5, description="The y.")) -> list[int]:
        return [x, y]

    built = Tool.from_fn(pick)
    assert built.parameters["required"] == ["x"]
    assert built.parameters["properties"]["x"]["minimum"] == 1
    assert built.parameters["properties"]["y"]["description"] == "The y."
    assert (await run_tool(pick, x=2)).content == "[2,5]"
    assert (await run_tool(pick, x=0)).is_error


async def test_a_default_in_an_annotated_field_is_used() -> None:
    def pick(x: Annotated[int, pydantic.Field(default=5, ge=1)]) -> int:
        return x

    assert "required" not in Tool.from_fn(pick).parameters
    assert (await run_tool(pick)).content == "5"
    assert (await run_tool(pick, x=0)).is_error


async def test_dispatch_handles_any_returned_value_or_exception() -> None:
    class Awkward(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

        __repr__ = __str__

    async def give() -> Any:
        return Awkward()

    async def fail() -> Any:
        raise Awkward

    async def deep() -> Any:
        value: list[Any] = []
        for _ in range(100_000):
            value = [value]
        return value

    logging.getLogger("tellback.tools").setLevel(logging.CRITICAL)
    try:
        for fn in (give, fail, deep):
            assert (await run_tool(fn)).is_error
    finally:
        logging.getLogger("tellback.tools").setLevel(logging.NOTSET)


def test_a_class_is_not_a_tool() -> None:
    with pytest.raises(ToolSchemaError, match="is a class"):
        Tool.from_fn(Bag)


async def test_a_sync_tool_may_raise_stop_iteration() -> None:
    def exhausted() -> int:
        return next(iter([]))

    result = await asyncio.wait_for(run_tool(exhausted), 5)
    assert result.is_error
    assert "StopIteration" in result.content


async def test_a_cancelled_task_inside_a_tool_is_an_error_result() -> None:
    async def inner() -> None:
        task = asyncio.create_task(asyncio.sleep(30))
        task.cancel()
        await task

    assert "CancelledError" in (await run_tool(inner)).content


async def test_a_failing_input_validation_is_an_error_result() -> None:
    def take(x: Annotated[str, pydantic.AfterValidator({}.__getitem__)]) -> str:
        return x

    result = await run_tool(take, x="a")
    assert result.is_error
    assert "KeyError" in result.content


async def test_non_string_keys_are_converted() -> None:
    async def give() -> Any:
        return {datetime.date(2026, 1, 2): 5}

    assert (await run_tool(give)).content == '{"2026-01-02":5}'


def test_an_unbound_method_is_rejected() -> None:
    class Shop:
        def sell(self, item: str) -> str:
            """Sell."""
            return item

    with pytest.raises(ToolSchemaError, match=r"tools=\[thing.sell\]"):
        Tool.from_fn(Shop.sell)
    assert list(Tool.from_fn(Shop().sell).parameters["properties"]) == ["item"]


def test_the_return_annotation_need_not_be_resolvable() -> None:
    def give(x: int) -> None: ...

    give.__annotations__["return"] = "OnlyForTypeCheckers"
    assert Tool.from_fn(give).parameters["required"] == ["x"]


def test_functions_and_objects_of_tools_are_garbage_collected() -> None:
    class Thing:
        def look(self) -> str:
            """Look."""
            return ""

    def make() -> Any:
        big = Thing()

        def closure() -> Thing:
            """Hold something."""
            return big

        return closure

    thing, closure = Thing(), make()
    as_tool(thing.look)
    as_tool(closure)
    references = [weakref.ref(thing), weakref.ref(closure)]
    del thing, closure
    gc.collect()
    assert [ref() for ref in references] == [None, None]


async def test_types_local_to_the_function_that_defines_the_tool_are_found() -> None:
    class Address(pydantic.BaseModel):
        city: str

    def send(to: Address) -> str:
        """Send to a place."""
        return to.city

    assert "Address" in Tool.from_fn(send).parameters["$defs"]
    assert list(tools_by_name([send])) == ["send"]
    assert (await run_tool(send, to={"city": "Rome"})).content == "Rome"


async def test_a_call_may_be_a_mapping() -> None:
    async def double(n: int) -> int:
        return 2 * n

    assert (await dispatch({"id": "c", "name": "double", "input": {"n": 2}}, [double])).content == "4"


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 2}, "days": {"type": "array", "items": {"type": "integer"}}},
    "required": ["city"],
}


async def test_input_is_validated_against_a_custom_schema() -> None:
    async def weather(**input: Any) -> str:
        return f"{input}"

    built = Tool("weather", "The weather.", SCHEMA, weather)
    assert (await dispatch(ToolCall("c", "weather", {"city": "Rome"}), [built])).content == "{'city': 'Rome'}"
    wrong = await dispatch(ToolCall("c", "weather", {"city": "Rome", "days": [1, "x"]}), [built])
    assert wrong.is_error
    assert "days.1: 'x' is not of type 'integer'" in wrong.content
    with pytest.raises(ToolSchemaError, match="not a valid JSON schema"):
        Tool("bad", "", {"type": "objekt"}, weather)


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)))
def test_dispatch_never_raises_for_any_input(input: dict[str, Any]) -> None:
    result = asyncio.run(dispatch(ToolCall("c", "book", input), [book]))
    assert result.is_error


async def test_external_schema_references_are_not_fetched() -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:1/schema.json"}}}
    tool_ = Tool("look", "Looks.", schema, lambda x: x)
    result = await dispatch(ToolCall("c1", "look", {"x": 1}), [tool_])
    assert result.is_error
    assert "Unresolvable" in result.content


async def test_a_tool_can_read_the_current_call() -> None:
    async def which() -> str:
        await asyncio.sleep(0)
        call = current_call()
        return "none" if call is None else call.id

    def in_a_thread() -> str:
        call = current_call()
        return "none" if call is None else call.id

    tool_calls = [ToolCall("call_1", "which"), ToolCall("call_2", "in_a_thread"), ToolCall("call_3", "which")]
    assert [result.content for result in await dispatch_all(tool_calls, [which, in_a_thread])] == [
        "call_1",
        "call_2",
        "call_3",
    ]
    assert (await dispatch(ToolCall("call_4", "which"), [which])).content == "call_4"
    assert current_call() is None


def test_a_tool_made_from_a_tool_has_the_new_fields_and_keeps_the_others() -> None:
    @tool(timeout=5)
    def pay(amount: int) -> str:
        "Pay an amount."
        return f"paid {amount}"

    guarded = tool(requires_approval=True, name="pay_bill")(pay)
    assert (guarded.requires_approval, guarded.name, guarded.timeout) == (True, "pay_bill", 5)
    assert (guarded.description, guarded.parameters, guarded(3)) == (pay.description, pay.parameters, "paid 3")
    assert not pay.requires_approval
    assert Tool.from_fn(guarded).requires_approval
