"""Ask what was true, and what was known, at any time.

    python examples/time_travel.py

Maya lived in Porto and moved to Lisbon in March. In April the memory stored a wrong city, Faro, and in May the
correction. `valid_at` asks where she lived at a time, `known_at` what the memory knew at a time. No model is needed.
"""

from datetime import UTC, datetime

from example_helpers import run
from tellback import Tellback

JANUARY, MARCH, APRIL, MAY, JUNE = (datetime(2026, month, 1, tzinfo=UTC) for month in (1, 3, 4, 5, 6))
QUESTION = "Where does Maya live?"


async def main() -> None:
    """Store the facts over half a year, and query them."""
    now = JANUARY
    async with Tellback(":memory:", clock=lambda: now) as tb:
        memory = tb.user("maya").memory
        space = await memory.create_space("default")
        porto = await memory.add_atom(space.id, "Maya lives in Porto.", valid_from=datetime(2024, 1, 1, tzinfo=UTC))
        now = APRIL
        faro = await memory.supersede_atom(porto.id, "Maya lives in Faro.", valid_from=MARCH)
        now = MAY
        await memory.supersede_atom(faro.id, "Maya lives in Lisbon.", valid_from=MARCH)
        now = JUNE

        async def ask(valid_at: datetime | None = None, known_at: datetime | None = None) -> str:
            recalled = await memory.recall_by_topic(space.id, QUESTION, limit=1, valid_at=valid_at, known_at=known_at)
            return recalled.hits[0].atom.text if recalled.hits else "nothing is known"

        print(f"> {QUESTION}")
        print(f"today: {await ask()}")
        print(f"in January: {await ask(valid_at=JANUARY)}")
        print(f"in March: {await ask(valid_at=MARCH)}")
        print(f"in March, as known in April: {await ask(valid_at=MARCH, known_at=APRIL)}")
        print(f"in March, as known in March: {await ask(valid_at=MARCH, known_at=MARCH)}")

        print("\nTimeline:")
        for hit in await memory.recall_timeline(space.id, query="where Maya lives"):
            atom = hit.atom
            until = f"{atom.valid_to:%Y-%m-%d}" if atom.valid_to else "now"
            known = f"superseded on {atom.superseded_at:%Y-%m-%d}" if atom.superseded_at else "current"
            print(f"  {atom.valid_from:%Y-%m-%d} to {until}: {atom.text} ({known})")


if __name__ == "__main__":
    run(main())
