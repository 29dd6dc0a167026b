"""What was true, and what was known, at any moment: facts with two times.

    python examples/time_travel.py

Maya lived in Porto and moved to Lisbon in March. We were told in April, and wrongly: it was Faro. In May it was
corrected. So there are two questions, and one store answers both: where did she live (`valid_at`), and what did we
believe at the time (`known_at`). No model is needed.
"""

from datetime import UTC, datetime

from example_helpers import run
from tellback import Tellback

JANUARY, MARCH, APRIL, MAY, JUNE = (datetime(2026, month, 1, tzinfo=UTC) for month in (1, 3, 4, 5, 6))
QUESTION = "Where does Maya live?"


async def main() -> None:
    """Live through half a year, and look back."""
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
        print(f"in March, as we believed in April: {await ask(valid_at=MARCH, known_at=APRIL)}")
        print(f"in March, as we believed in March: {await ask(valid_at=MARCH, known_at=MARCH)}")

        print("\nHow it came about:")
        for hit in await memory.recall_timeline(space.id, query="where Maya lives"):
            atom = hit.atom
            until = f"{atom.valid_to:%Y-%m-%d}" if atom.valid_to else "now"
            known = f"believed until {atom.superseded_at:%Y-%m-%d}" if atom.superseded_at else "believed"
            print(f"  {atom.valid_from:%Y-%m-%d} to {until}: {atom.text} ({known})")


if __name__ == "__main__":
    run(main())
