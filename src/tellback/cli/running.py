"""How commands run: the store is opened and closed around them, and what goes wrong is told in a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

from tellback.cli.printing import safe
from tellback.cli.sentences import sentence_of
from tellback.errors import ConfigurationError, NotFoundError, TellbackError

if TYPE_CHECKING:
    from tellback.app import Tellback
    from tellback.types.memory import MemorySpace
    from tellback.user import User

T = TypeVar("T")

INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Whose:
    """A user, and the store that holds what is kept of them."""

    url: str
    user: str
    tenant: str = "default"
    app: str = "default"


def fail(sentence: str, code: int = 2) -> NoReturn:
    """End the command, and say why."""
    typer.secho(safe(sentence), err=True, fg="red")
    raise typer.Exit(code)


@contextmanager
def told() -> Iterator[None]:
    """Errors in one sentence on standard error, with the exit code 2; Ctrl-C ends quietly, with 130."""
    try:
        yield
    except TellbackError as error:
        fail(sentence_of(error))
    except BrokenPipeError:
        raise  # whoever read the output has left: typer ends quietly
    except TimeoutError as error:
        fail(str(error))
    except OSError as error:
        where = f"{error.filename} cannot be used: " if error.filename else ""
        fail(f"{where}{error.strerror or error}.")
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run a command's asynchronous part."""

    async def working() -> T:
        return await work()

    with told():
        return asyncio.run(working())


@asynccontextmanager
async def opened(url: str, *, new: bool = False, in_memory: bool = False, **more: Any) -> AsyncIterator[Tellback]:
    """The store, opened. One that is not there is only made if the command may begin one."""
    from tellback.app import Tellback
    from tellback.cli.looking import refuse_others

    refuse_others(url, new=new)
    rc = Tellback(url, **{"worker": False, **more})
    if rc.store.url.endswith(":memory:") and not in_memory:
        raise ConfigurationError("What is in memory ends with this command: name a file, or postgresql://… .")
    async with rc:
        yield rc


def ask(whose: Whose, work: Callable[[User], Awaitable[T]], *, new: bool = False) -> T:
    """What `work` gives for the user's handle."""

    async def asking() -> T:
        async with opened(whose.url, new=new) as rc:
            return await work(handle(rc, whose))

    return run(asking)


def handle(rc: Tellback, whose: Whose) -> User:
    """The user's handle."""
    return rc.user(whose.user, whose.tenant, whose.app)


async def space_of(user: User, named: str | None, *, new: bool = False) -> MemorySpace:
    """The space of that name or id; without one the space called "default", or the only one there is."""
    spaces = await user.memory.list_spaces()
    wanted = named or "default"
    for space in spaces:
        if wanted in (space.id, space.name):
            return space
    if named is None and len(spaces) == 1:
        return spaces[0]
    if new and (named is None or not named.startswith("ms_")):
        return await user.memory.create_space(wanted, once=True)
    if not spaces:
        raise unknown_user(user, "memory space")
    there = ", ".join(repr(space.name) for space in spaces)
    raise NotFoundError("memory space", wanted, f"There are {there}: choose one with --space.")


def unknown_user(user: User, what: str) -> TellbackError:
    """That a user has none of what is asked for."""
    return ConfigurationError(nothing_of(user, what))


def nothing_of(user: User, what: str) -> str:
    """That a user has none of something, in words that a mistyped name is found by."""
    scope = user.scope
    where = "" if (scope.tenant_id, scope.app_id) == ("default", "default") else f" of {scope.tenant_id}/{scope.app_id}"
    return f"User {scope.user_id!r}{where} has no {what} here: check --user, --tenant, --app and --url."
