"""Generate chat turns in plain English and questions about them; the output is the same for the same seed.

Sentences consist of everyday words and invented names. Word frequencies fall off as in real text, so an index has to
handle very common and very rare words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

SEED = 20240229
PEOPLE = 400
PLACES = 600
THINGS = 2_500

VERBS = (
    *("bought", "found", "lost", "painted", "repaired", "borrowed", "sold", "packed", "photographed", "finished"),
    *("ordered", "planted", "cleaned", "cooked", "recorded", "designed", "collected", "returned", "wrapped", "tested"),
    *("moved", "carried", "opened", "printed", "measured", "described", "ignored", "donated", "built", "watched"),
)
ADJECTIVES = (
    *("blue", "old", "quiet", "wooden", "tiny", "expensive", "broken", "favourite", "green", "strange", "heavy"),
    *("second", "bright", "cheap", "famous", "handmade", "empty", "warm", "salty", "narrow", "early", "plain"),
)
NOUNS = (
    *("kayak", "recipe", "violin", "garden", "ticket", "camera", "jacket", "letter", "bicycle", "lamp", "puzzle"),
    *("notebook", "carpet", "guitar", "kettle", "mirror", "ladder", "blanket", "poster", "map", "clock", "basket"),
    *("novel", "window", "engine", "painting", "suitcase", "keyboard", "tent", "cake", "sweater", "telescope"),
)
REASONS = (
    *("because the weather was good", "after work", "with my sister", "before the holidays", "for the first time"),
    *("since nobody else wanted to", "for a friend's birthday", "while it was raining", "to save some money"),
    *("and it took the whole weekend", "so I feel much better now", "but I am not sure about it yet", "by accident"),
)
OPENINGS = ("", "", "", "Well, ", "You know, ", "By the way, ", "Honestly, ", "Guess what: ", "So, ")
ASIDES = ("", "", " What do you think?", " I can show you a picture.", " It made my day.", " Let me know.", " Anyway!")
QUESTION_TEMPLATES = (
    "What did {person} say about the {thing} {noun}?",
    "Who {verb} a {thing} {noun} in {place}?",
    "When was the {noun} in {place} {verb}, the {thing} one?",
    "Do you remember the {thing} {noun} from {place}?",
)
QUESTION_OPENINGS = ("", "Tell me: ", "One more thing. ", "I forgot this: ", "Please, ", "Again: ", "Hm, ", "Quickly: ")
VARIANTS = len(QUESTION_TEMPLATES) * len(QUESTION_OPENINGS)
_ONSETS = (
    "b",
    "br",
    "d",
    "dr",
    "f",
    "g",
    "gl",
    "h",
    "k",
    "l",
    "m",
    "n",
    "p",
    "pr",
    "r",
    "s",
    "st",
    "t",
    "tr",
    "v",
    "z",
)
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "io")
_CODAS = ("", "", "l", "n", "r", "s", "m", "nd", "rt", "x")


@dataclass(frozen=True, slots=True)
class Memory:
    """A turn, and the words that a question about it can use."""

    text: str
    parts: Mapping[str, str]

    def question(self, variant: int) -> str:
        """Return a question that this memory answers; numbers up to `VARIANTS` give different questions."""
        template = QUESTION_TEMPLATES[variant % len(QUESTION_TEMPLATES)].format(**self.parts)
        opening = QUESTION_OPENINGS[variant // len(QUESTION_TEMPLATES) % len(QUESTION_OPENINGS)]
        return f"{opening}{template}"


def build_memories(count: int, seed: int = SEED) -> list[Memory]:
    """Return `count` different memories; a larger count only appends more."""
    random = Random(seed)
    people = [word.capitalize() for word in _invent_words(random, PEOPLE, 2)]
    places = [word.capitalize() for word in _invent_words(random, PLACES, 3)]
    things = [*_invent_words(random, THINGS, 2)]
    weights = {id(words): _cumulative_weights(len(words)) for words in (people, places, things)}

    def pick_word(words: Sequence[str]) -> str:
        return random.choices(words, cum_weights=weights[id(words)])[0]

    created: list[Memory] = []
    seen: set[str] = set()
    while len(created) < count:
        parts = {
            "person": pick_word(people),
            "place": pick_word(places),
            "thing": pick_word(things),
            "verb": random.choice(VERBS),
            "noun": random.choice(NOUNS),
        }
        text = (
            f"{random.choice(OPENINGS)}{parts['person']} {parts['verb']} the {random.choice(ADJECTIVES)} "
            f"{parts['thing']} {parts['noun']} in {parts['place']} {random.choice(REASONS)}.{random.choice(ASIDES)}"
        )
        if text not in seen:
            seen.add(text)
            created.append(Memory(text, parts))
    return created


def build_questions(memories: Sequence[Memory], count: int, seed: int = SEED) -> list[tuple[str, int]]:
    """Return different questions, each with the number of the memory that answers it."""
    if count > VARIANTS * len(memories):
        raise ValueError(f"{count} questions about {len(memories)} memories would repeat themselves")
    order = [*range(len(memories))]
    Random(seed).shuffle(order)
    questions: dict[str, int] = {}
    for variant in range(VARIANTS):
        for index in order:
            if len(questions) == count:
                return [*questions.items()]
            questions.setdefault(memories[index].question(variant), index)
    return [*questions.items()]


def _invent_words(random: Random, count: int, syllables: int) -> Iterator[str]:
    seen: set[str] = set()
    while len(seen) < count:
        parts = [random.choice(_ONSETS) + random.choice(_VOWELS) for _ in range(syllables)]
        word = "".join(parts) + random.choice(_CODAS)
        if word not in seen:
            seen.add(word)
            yield word


def _cumulative_weights(count: int) -> list[float]:
    """Return cumulative weights that fall off with the rank."""
    return [*accumulate(1 / (rank + 3) for rank in range(count))]
