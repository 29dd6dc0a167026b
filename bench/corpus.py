"""Made-up chat turns in plain English, and questions about them: the same ones for the same seed.

Sentences are built from everyday words and invented names. How often a word comes up falls off as it does in a real
text, so that an index has both very common and very rare words to deal with.
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
ASKED = (
    "What did {person} say about the {thing} {noun}?",
    "Who {verb} a {thing} {noun} in {place}?",
    "When was the {noun} in {place} {verb}, the {thing} one?",
    "Do you remember the {thing} {noun} from {place}?",
)
ASKING = ("", "Tell me: ", "One more thing. ", "I forgot this: ", "Please, ", "Again: ", "Hm, ", "Quickly: ")
VARIANTS = len(ASKED) * len(ASKING)
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
    """A turn, and what a question about it can name."""

    text: str
    named: Mapping[str, str]

    def question(self, variant: int) -> str:
        """A question whose answer it is; another one for another number, up to `VARIANTS`."""
        template = ASKED[variant % len(ASKED)].format(**self.named)
        opening = ASKING[variant // len(ASKED) % len(ASKING)]
        return f"{opening}{template}"


def memories(count: int, seed: int = SEED) -> list[Memory]:
    """So many, no two of them alike; the first ones are the same whatever the number."""
    random = Random(seed)
    people = [word.capitalize() for word in _invented(random, PEOPLE, 2)]
    places = [word.capitalize() for word in _invented(random, PLACES, 3)]
    things = [*_invented(random, THINGS, 2)]
    often = {id(words): _falling(len(words)) for words in (people, places, things)}

    def one_of(words: Sequence[str]) -> str:
        return random.choices(words, cum_weights=often[id(words)])[0]

    made: list[Memory] = []
    seen: set[str] = set()
    while len(made) < count:
        parts = {
            "person": one_of(people),
            "place": one_of(places),
            "thing": one_of(things),
            "verb": random.choice(VERBS),
            "noun": random.choice(NOUNS),
        }
        text = (
            f"{random.choice(OPENINGS)}{parts['person']} {parts['verb']} the {random.choice(ADJECTIVES)} "
            f"{parts['thing']} {parts['noun']} in {parts['place']} {random.choice(REASONS)}.{random.choice(ASIDES)}"
        )
        if text not in seen:
            seen.add(text)
            made.append(Memory(text, parts))
    return made


def questions(about: Sequence[Memory], count: int, seed: int = SEED) -> list[tuple[str, int]]:
    """So many questions, all different, each with the number of the memory that answers it."""
    if count > VARIANTS * len(about):
        raise ValueError(f"{count} questions about {len(about)} memories would repeat themselves")
    order = [*range(len(about))]
    Random(seed).shuffle(order)
    asked: dict[str, int] = {}
    for variant in range(VARIANTS):
        for index in order:
            if len(asked) == count:
                return [*asked.items()]
            asked.setdefault(about[index].question(variant), index)
    return [*asked.items()]


def _invented(random: Random, count: int, syllables: int) -> Iterator[str]:
    seen: set[str] = set()
    while len(seen) < count:
        parts = [random.choice(_ONSETS) + random.choice(_VOWELS) for _ in range(syllables)]
        word = "".join(parts) + random.choice(_CODAS)
        if word not in seen:
            seen.add(word)
            yield word


def _falling(count: int) -> list[float]:
    """Weights that fall off with the rank, added up."""
    return [*accumulate(1 / (rank + 3) for rank in range(count))]
