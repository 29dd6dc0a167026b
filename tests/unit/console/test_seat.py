"""What a page does goes through its seat: only while the credential holds, counted, and with errors told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from nicegui import ui

from tellback import Tellback
from tellback.console.seat import FAILED, Seat
from tellback.errors import InvalidArgumentError, RateLimitedError, StoreUnavailableError
from tellback.server import ServerSettings
from tellback.server.access import OPEN
from tellback.server.callers import Caller, Home
from tellback.server.serving import Serving


@dataclass
class World:
    """A credential that may end, and what the page shows."""

    holds: bool = True
    is_down: bool = False
    uses: list[bool] = field(default_factory=list)
    counted: int = 0
    limit: int = 100
    told: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    async def is_still_valid(self, *, is_used: bool = True) -> bool:
        self.uses.append(is_used)
        if self.is_down:
            raise StoreUnavailableError("The database is away.")
        return self.holds

    async def count(self) -> None:
        self.counted += 1
        if self.counted > self.limit:
            raise RateLimitedError("Too many.", 1.0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(ui, "notify", lambda text, **_: made.told.append(text))
    monkeypatch.setattr(ui.navigate, "to", made.left.append)
    return made


def seat(world: World) -> Seat:
    caller = Caller(Home(Tellback(":memory:"), ServerSettings(open=True)), OPEN, "local")
    return Seat(caller, {"user": "maya"}, world.is_still_valid, world.count, Serving())


async def test_a_handler_is_given_as_much_as_it_takes_and_counts_once(world: World) -> None:
    done: list[Any] = []

    async def later(one: int) -> None:
        done.append(one)

    await seat(world).doing(later)(1, 2, 3)
    await seat(world).doing(lambda: done.append("none"))("event")
    assert done == [1, "none"]
    assert (world.counted, world.uses) == (2, [True, True])


async def test_nothing_is_done_once_the_credential_has_ended(world: World) -> None:
    world.holds = False
    done: list[int] = []
    await seat(world).doing(lambda: done.append(1))()
    assert (done, world.left, world.counted) == ([], ["./?user=maya"], 0)


async def test_errors_of_ours_are_told_and_others_are_told_of_and_raised(world: World) -> None:
    def refuse() -> None:
        raise InvalidArgumentError("That is no day.")

    def fail() -> None:
        raise ZeroDivisionError("a secret of the server")

    await seat(world).doing(refuse)()
    with pytest.raises(ZeroDivisionError):
        await seat(world).doing(fail)()
    assert world.told == ["That is no day.", FAILED]


async def test_who_does_too_much_is_told_and_it_is_not_done(world: World) -> None:
    world.limit = 1
    done: list[int] = []
    act = seat(world).doing(lambda: done.append(1))
    await act()
    await act()
    assert (done, world.told) == ([1], ["Too many."])


async def test_what_a_page_does_by_itself_is_no_use_and_no_request(world: World) -> None:
    await seat(world).doing(lambda: None, by_itself=True)()
    await seat(world).check()
    assert (world.uses, world.counted, world.left) == ([False, False], 0, [])
    world.holds = False
    await seat(world).check()
    assert world.left == ["./?user=maya"]


async def test_while_the_store_is_away_nothing_is_done_that_is_told_and_the_page_stays(world: World) -> None:
    world.is_down = True
    done: list[int] = []
    await seat(world).doing(lambda: done.append(1))()
    await seat(world).doing(lambda: done.append(2), by_itself=True)()
    await seat(world).check()
    assert (done, world.told, world.left) == ([], ["The database is away."], [])
