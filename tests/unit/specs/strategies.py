"""Hypothesis strategies for agent specs."""

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


PARAMETERS = PARAMETER_NAMES.map(lambda name: f"${name}")
NO_VALUES: st.SearchStrategy[str] = st.nothing()
CONFIGS = st.sampled_from(["temperature", "stop", "reasoning", "thinking_config"])


def tools(also: st.SearchStrategy[str] = NO_VALUES) -> st.SearchStrategy[dict[str, Any]]:
    """Generate a tool of any type; bindable values may also be one of the texts in `also`."""
    common = {"name": TOOL_NAMES}
    may = {"description": LITERALS | also, "timeout": st.integers(1, 600) | st.floats(0.5, 600) | also}
    in_memory = {**common, "memorySpaceId": NAMES | also}
    recalls = {
        "limit": st.integers(1, 50) | also,
        "categoryNames": st.lists(NAMES | also, min_size=1, max_size=3) | also,
    }
    approved = {"requiresApproval": st.booleans()}
    return st.one_of(
        st.fixed_dictionaries(
            {**in_memory, "type": st.just("RECALL_BY_TOPIC")},
            optional={**may, **recalls, "minScore": st.floats(0, 1) | also},
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


def specs(
    also: st.SearchStrategy[str] = NO_VALUES, marked: st.SearchStrategy[str] = NO_VALUES
) -> st.SearchStrategy[dict[str, Any]]:
    """Generate a whole spec; bindable values may also be one of `also`, and texts one of `marked`."""
    return st.fixed_dictionaries(
        {"name": NAMES | marked},
        optional={
            "description": LITERALS | also | marked,
            "model": NAMES | also | marked,
            "systemPrompt": LITERALS | also | marked,
            "tools": st.lists(tools(also), max_size=3, unique_by=lambda tool: str(tool["name"])),
            "maxCycles": st.integers(1, 1_000) | also,
            "maxOutputTokens": st.integers(1, 100_000) | also,
            "namespace": NAMES | also | marked,
            "config": st.dictionaries(CONFIGS, JSON | also | marked | st.lists(also | marked), max_size=3),
            "userMessage": NAMES | also | marked,
        },
    )
