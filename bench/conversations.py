"""Generate conversations, the facts a model finds in each, and the facts known before; the output is always the same.

Each conversation has five facts. Two are new, one repeats a known fact verbatim, one changes the value of a slot that
has one value at a time, and one is so similar to a known fact that a model has to decide between them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from corpus import ADJECTIVES, SEED, VERBS, Memory, build_memories

SLOTS = 20
"""The number of known facts with a slot, which has one value at a time."""
TURNS = 10
FACTS = 5
MIN_SIZE = 60
"""Enough for one batch: each conversation uses two different memories."""
CHATTER = ("Did you sleep well?", "What a day it was.", "Let me think.", "One more thing.", "That is all for now.")
NUMBER_PREFIX = "chat number"
"""Marks the number of a conversation in its first line, so that the fake model can recognize it."""
DECISION = json.dumps({"decisions": [{"fact": 1, "verdict": "replaces", "candidate": 1}]})
"""The model decides that the fact replaces the most similar known one."""


def build_known_facts(size: int) -> list[dict[str, str]]:
    """Return the known facts: each with its `text`, the first ones also with a `slot` and its `value`."""
    slots = [{"text": _slot_text(n, 0), "slot": f"user: {_attribute(n)}", "value": _value(n, 0)} for n in range(SLOTS)]
    return [*slots, *({"text": text} for text in _texts(build_memories(size - SLOTS)))]


def build_conversations(count: int, size: int) -> list[dict[str, Any]]:
    """Return conversations of a user for whom the given number of facts is known.

    Each has `turns` (pairs of texts), `facts` (texts), and the `answer` of the model to Tellback's request.
    """
    known_memories = build_memories(size - SLOTS)
    texts, random = _texts(known_memories), Random(SEED)
    new_memories = build_memories(2 * count, seed=SEED + 2)
    return [
        _build_conversation(number, known_memories, texts, new_memories[2 * number : 2 * number + 2], random)
        for number in range(count)
    ]


def _build_conversation(
    number: int, known_memories: Sequence[Memory], texts: Sequence[str], new_memories: Sequence[Memory], random: Random
) -> dict[str, Any]:
    repeated = texts[2 * number % len(texts)]
    similar_index = (2 * number + 1) % len(texts)
    changed_slot, version = number % SLOTS, 1 + number // SLOTS
    similar_parts = known_memories[similar_index].parts | {
        "verb": _pick_other_verb(known_memories[similar_index].parts["verb"], random)
    }
    new_facts = [_new_text(memory, 2 * number + place) for place, memory in enumerate(new_memories)]
    facts = [*new_facts, repeated, _slot_text(changed_slot, version), _text(similar_parts, similar_index)]
    place = new_memories[0].parts["place"]
    entities = [{"name": new_memories[0].parts["person"], "type": "PERSON"}, {"name": place, "type": "PLACE"}]
    extracted_facts: list[dict[str, Any]] = [
        {"messages": [f"m{4 * index + 1}"], "text": text, "kind": "FACT", "category": "life", "subject": "user"}
        for index, text in enumerate(facts)
    ]
    extracted_facts[0]["entities"] = [entity["name"] for entity in entities]
    extracted_facts[3] |= {
        "attribute": _attribute(changed_slot),
        "value": _value(changed_slot, version),
        "single": True,
    }
    extracted_facts[3]["change"] = "changed"
    return {
        "turns": _turns(number, facts),
        "facts": facts,
        "answer": json.dumps({"facts": extracted_facts, "entities": entities}),
    }


def _turns(number: int, facts: Sequence[str]) -> list[tuple[str, str]]:
    turns = []
    for fact, chatter in zip(facts, CHATTER, strict=True):
        turns += [(f"You should know this: {fact}", "Thank you, I will keep that in mind."), (chatter, "I see.")]
    turns[0] = (f"This is {NUMBER_PREFIX} {number}. {turns[0][0]}", turns[0][1])
    return turns


def _texts(memories: Sequence[Memory]) -> list[str]:
    return [_text(memory.parts, index) for index, memory in enumerate(memories)]


def _text(parts: Any, index: int) -> str:
    adjective = ADJECTIVES[index % len(ADJECTIVES)]
    return "User's friend {person} {verb} the {adjective} {thing} {noun} in {place}.".format(
        **parts, adjective=adjective
    )


def _new_text(memory: Memory, number: int) -> str:
    """Return a text that differs from all others in two words."""
    words = f"quest{number}a and quest{number}b"
    return "User saw {person} with a {thing} {noun} in {place} for ".format(**memory.parts) + f"{words}."


def _pick_other_verb(verb: str, random: Random) -> str:
    return random.choice([other for other in VERBS if other != verb])


def _attribute(slot: int) -> str:
    return f"favourite number{slot}a"


def _value(slot: int, version: int) -> str:
    return f"choice{slot}x{version}"


def _slot_text(slot: int, version: int) -> str:
    return f"User's {_attribute(slot)} is {_value(slot, version)}."
