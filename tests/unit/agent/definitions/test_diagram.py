"""Diagrams of routes: they contain every state and transition, and no text breaks out of its label."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tellback.agent import Agent
from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import END_ROUTE
from tellback.agent.flow.move import Interpretation
from tellback.agent.sessions.session import create_session, enter_route, enter_state
from tellback.tools import tool
from tests.unit.agent.flow.route_strategies import SEEDS, Facts, RandomFlows, RandomTurn, play

titles = st.text(min_size=1, max_size=30).filter(str.strip)
nasty = titles | st.sampled_from(
    ['"]; click s0 "x"', "a\nb-->c", "<script>", "`x`", "end", "#quot;", "]]", "| a |", "%%{init: {}}%%", "100 %"]
)

NODE = r"r?\d*s(?:\d+|End)"
LABEL = r'"[^"\n\r`]*"'
LINES = (
    r"flowchart TD",
    rf"\s*subgraph r\d+\[{LABEL}\]",
    r"\s*end",
    rf"\s*{NODE}(?:\(\(start\)\)|\(\(\(\"?end\"?\)\)\)|\[{LABEL}\]|\[\[{LABEL}\]\])",
    rf"\s*{NODE} -->(?:\|{LABEL}\|)? {NODE}",
    r"\s*classDef current [^\"]*",
    rf"\s*class {NODE}(?:,{NODE})* current",
)


def is_well_formed(diagram: str) -> bool:
    """Whether every line matches a line format of the diagrams."""
    return all(any(re.fullmatch(line, each) for line in LINES) for each in diagram.split("\n"))


@given(nasty, nasty, nasty, nasty)
def test_no_text_breaks_out_of_its_label(title: str, first: str, second: str, condition: str) -> None:
    route = Route(title)
    ask = route.initial_state.transition_to(chat_state=first)
    ask.transition_to(chat_state=second, condition=condition).transition_to(state=END_ROUTE)
    for diagram in (route.to_mermaid(ask.id), Agent("Wanda", routes=[route]).to_mermaid()):
        assert is_well_formed(diagram), diagram
        labels = re.findall(LABEL, diagram)
        assert not [label for label in labels if "\n" in label or label.splitlines() != [label]]
        assert not any(mark in label.replace("<br/>", "") for label in labels for mark in "<>%")


@settings(deadline=None)
@given(SEEDS)
def test_every_state_and_transition_is_drawn_and_described(seed: int) -> None:
    routes = RandomFlows(seed).routes()
    agent = Agent("Wanda", routes=list(routes.values()))
    total_transitions = 0
    for route in routes.values():
        diagram, description = route.to_mermaid(), route.describe()
        route_transitions = sum(len(state.transitions) for state in route.states)
        assert diagram.count("-->") == description.count("→") == route_transitions
        total_transitions += route_transitions
        for number, state in enumerate(route.states):
            assert re.search(rf"^\s*s{number}[(\[]", diagram, re.MULTILINE)
            assert state.id in description
            for name in (*state.gather, *state.required_data):
                assert name in description
    agent_diagram = agent.to_mermaid()
    assert is_well_formed(agent_diagram)
    assert agent_diagram.count("-->") == total_transitions
    assert agent_diagram.count("subgraph") == len(routes)


@settings(deadline=None, max_examples=50)
@given(SEEDS)
def test_only_the_current_state_is_highlighted(seed: int) -> None:
    routes = RandomFlows(seed).routes(end=False)
    first = next(iter(routes.values()))
    result, _ = play(routes, create_session("web-42"), RandomTurn(Interpretation(scores={first.id: 100})))
    diagram = Agent("Wanda", routes=list(routes.values())).to_mermaid(result.session)
    assert result.state is not None
    assert f"class r0s{first.states.index(result.state)} current" in diagram
    assert first.to_mermaid("nowhere").count("current") == 0


def test_a_session_in_another_route_highlights_no_state() -> None:
    route = Route("Book", gather_schema=Facts)
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["a"])
    session = enter_state(enter_route(create_session("web-42"), "other", "Other"), ask.id)
    assert "current" not in Agent("Wanda", routes=[route]).to_mermaid(session)
    assert "current" not in Agent("Wanda", routes=[route]).to_mermaid()


def test_a_diagram_shows_gathered_fields_conditions_and_the_end() -> None:
    def is_late(data: object) -> bool:
        return True

    def look(a: str) -> str:
        """Look."""
        return a

    route = Route("Book", gather_schema=Facts)
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["a", "note"])
    tool = ask.transition_to(tool_state=look, condition=is_late)
    tool.transition_to(chat_state="Sorry", on_error=True)
    tool.transition_to(state=END_ROUTE, condition="the user agrees")
    diagram, description = route.to_mermaid(), route.describe()
    assert 's1["Ask<br/><i>a, note</i>"]' in diagram
    assert 's2[["look"]]' in diagram
    assert 's1 -->|"is_late() is true"| s2' in diagram
    assert 's2 -->|"the tool fails"| s3' in diagram
    assert 's2 -->|"the user agrees"| sEnd' in diagram
    assert "note (optional)" in description
    assert "→ END_ROUTE when the user agrees" in description


def test_an_unfinished_route_can_be_drawn() -> None:
    route = Route("Book")
    route.initial_state.transition_to(state="later")
    assert is_well_formed(route.to_mermaid())
    assert "→ later" in route.describe()


def test_a_description_contains_every_option_of_a_route() -> None:
    @tool(requires_approval=True)
    def pay(order: str) -> str:
        """Pay."""
        return order

    def given(data: object) -> dict[str, str]:
        return {"order": "A1"}

    route = Route("Pay", gather_schema=Facts, initial_data={"a": "x"}, canned_responses=["One\n moment."])
    pay_state = route.initial_state.transition_to(
        tool_state=pay,
        arguments={"order": "a"},
        repeat=False,
        canned_responses=[{"text": "Paid.", "condition": "it ran"}],
    )
    pay_state.transition_to(state=END_ROUTE, on_error=True, condition="the user gives up")
    pay_state.transition_to(state=END_ROUTE, on_error=True, condition=bool)
    pay_state.transition_to(tool_state=pay, id="again", arguments=given, forgets=["a", "note"])
    description, diagram = route.describe(), route.to_mermaid()
    for line in (
        "  Initial data: a='x'",
        '  Canned: "One moment."',
        "      arguments: order=a",
        "      needs approval",
        "      runs once",
        '      canned: when it ran: "Paid."',
        "      → END_ROUTE when the tool fails, and the user gives up",
        "      → END_ROUTE when the tool fails, and bool() is true",
        "      → pay (forgets a, note)",
        "      arguments: given()",
    ):
        assert line in description.splitlines(), line
    assert description.count("runs once") == 1
    assert 's1 -->|"the tool fails, and the user gives up"| sEnd' in diagram


@given(st.from_regex(r"(\d{0,9}[.)]|[-+*_~]{1,3}) \w.*", fullmatch=True))
def test_no_label_begins_with_markdown(text: str) -> None:
    route = Route(text)
    route.initial_state.transition_to(chat_state=text, condition=text).transition_to(state=END_ROUTE)
    diagram = Agent("Wanda", routes=[route]).to_mermaid()
    assert is_well_formed(diagram)
    assert not [label for label in re.findall(LABEL, diagram) if re.match(r'"(?:\d*[.)]|[-+*_~])', label)]


def test_a_state_title_that_begins_with_a_number_is_escaped() -> None:
    route = Route("- Book")
    route.initial_state.transition_to(chat_state="1. Ask", condition="2) so")
    assert 's1["1#46; Ask"]' in route.to_mermaid()
    assert '|"2#41; so"|' in route.to_mermaid()
    assert '["#45; Book"]' in Agent("Wanda", routes=[route]).to_mermaid()
