"""Strategies for descriptions of agents, as anyone might write them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)
LITERALS = WORDS.filter(lambda text: not text.startswith("$"))
NAMES = LITERALS.filter(lambda text: bool(text.strip()))
TOOL_NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
PARAMETER_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | LITERALS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


def tools(space_ids: st.SearchStrategy[str] = NAMES) -> st.SearchStrategy[dict[str, Any]]:
    """One tool of any type."""
    common = {"name": TOOL_NAMES}
    may = {"description": LITERALS, "timeout": st.integers(1, 600) | st.floats(0.5, 600)}
    in_memory = {**common, "memorySpaceId": space_ids}
    recalls = {"limit": st.integers(1, 50), "categoryNames": st.lists(NAMES, max_size=3)}
    approved = {"requiresApproval": st.booleans()}
    return st.one_of(
        st.fixed_dictionaries(
            {**in_memory, "type": st.just("RECALL_BY_TOPIC")},
            optional={**may, **recalls, "minScore": st.floats(0, 1)},
        ),
        st.fixed_dictionaries(
            {**in_memory, "type": st.sampled_from(["RECALL_BY_ENTITY", "RECALL_TIMELINE"])},
            optional={**may, **recalls},
        ),
        st.fixed_dictionaries(
            {**in_memory, "type": st.sampled_from(["REMEMBER", "FORGET"])}, optional={**may, **approved}
        ),
        st.fixed_dictionaries({**common, "type": st.just("FUNCTION")}, optional={**may, **approved}),
    )


def specs() -> st.SearchStrategy[dict[str, Any]]:
    """A whole description, without parameters but for the message."""
    return st.fixed_dictionaries(
        {"name": NAMES},
        optional={
            "description": LITERALS,
            "model": NAMES,
            "systemPrompt": LITERALS,
            "tools": st.lists(tools(), max_size=3, unique_by=lambda tool: str(tool["name"])),
            "maxCycles": st.integers(1, 1_000),
            "maxOutputTokens": st.integers(1, 100_000),
            "namespace": NAMES,
            "config": st.dictionaries(WORDS, JSON, max_size=3),
            "userMessage": NAMES,
        },
    )
