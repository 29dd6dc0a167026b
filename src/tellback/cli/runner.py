"""Register and run commands: resolve model and user, open the store, and report errors in one sentence."""

from __future__ import annotations

import asyncio
import functools
import inspect
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

from tellback.cli.options import UserTarget, format_examples, unwrap_paragraphs
from tellback.cli.output import escape_controls
from tellback.concurrency import cancel_and_wait
from tellback.errors import (
    ConfigurationError,
    ConversationClosedError,
    MissingKeyError,
    NotFoundError,
    ProviderAuthError,
    TellbackError,
    UnknownModelError,
)

if TYPE_CHECKING:
    from tellback.app import Tellback
    from tellback.chat import ModelChoice
    from tellback.types.memory import MemorySpace
    from tellback.user import User

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

INTERRUPT_EXIT_CODE = 130
LOCAL_HOST = "127.0.0.1"


def command_group(help: str, *examples: str) -> typer.Typer:
    """Create a group of commands with its help and examples."""
    return typer.Typer(no_args_is_help=True, help=help, epilog=format_examples(*examples))


def register_command(
    app: typer.Typer, *examples: str, name: str | None = None, panel: str | None = None, may_create: bool = False
) -> Callable[[F], F]:
    """Register a function as a command, with its docstring as help and with examples.

    A parameter of the type `UserTarget` or `User` becomes the four options of a target. A `User` parameter receives
    the handle of an open store. With `may_create`, a missing store is created.
    """

    def decorate(function: F) -> F:
        assert function.__doc__ is not None
        help_text = unwrap_paragraphs(function.__doc__)
        command = _expand_target(function, may_create)
        app.command(name, help=help_text, epilog=format_examples(*examples), rich_help_panel=panel)(command)
        return function

    return decorate


def _expand_target(function: Callable[..., Any], may_create: bool) -> Callable[..., Any]:
    """Add the options of a target after the other parameters; `--json` always comes last."""
    own = dict(inspect.signature(function, eval_str=True, locals={"User": UserTarget}).parameters)
    target_name = next((name for name, each in own.items() if each.annotation is UserTarget), None)
    if target_name is None:
        return function
    del own[target_name]
    options = inspect.signature(UserTarget, eval_str=True).parameters

    @functools.wraps(function)
    def run(**arguments: Any) -> Any:
        target = UserTarget(**{name: arguments.pop(name) for name in options})
        if not inspect.iscoroutinefunction(function):
            return function(**{target_name: target}, **arguments)
        return run_for_user(target, lambda user: function(user, **arguments), may_create=may_create)

    expanded = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in sorted([*own.values(), *options.values()], key=lambda each: each.name == "as_json")
    ]
    run.__signature__ = inspect.Signature(expanded)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in expanded}
    return run


def format_error(error: TellbackError) -> str:
    """Return one sentence that states the error and what to do next."""
    if isinstance(error, UnknownModelError):
        known_providers = f" No provider has it ({', '.join(error.known)})." if error.known else ""
        return f"Unknown model {error.model!r}.{known_providers} Run `tellback doctor` to see the available models."
    if isinstance(error, MissingKeyError):
        names = " or ".join(error.variables)
        return f"{error.provider} requires an API key: set {names}, or choose another model with --model."
    if isinstance(error, ProviderAuthError):
        status = f" ({error.status})" if error.status else ""
        return (
            f"{error.provider or 'The provider'} rejected the API key{status}: check the key, or choose another model"
            " with --model. `tellback doctor` shows which keys are set."
        )
    if isinstance(error, ConversationClosedError):
        return f"Conversation {error.id!r} is closed: omit --conversation to start a new one."
    return str(error)


def resolve_model(model: str | None = None) -> ModelChoice:
    """Return the requested model, or the best one that is set up. Raises `UnknownModelError` for an unknown name."""
    from tellback.chat import ChatOptions, choose_model, resolve_registration

    choice = choose_model(model)
    resolve_registration(ChatOptions(model=choice.name))
    return choice


def fail(message: str, code: int = 2) -> NoReturn:
    """Print an error and exit."""
    typer.secho(escape_controls(message), err=True, fg="red")
    raise typer.Exit(code)


@contextmanager
def report_errors() -> Iterator[None]:
    """Print errors as one sentence on standard error and exit with 2; on Ctrl-C, exit with 130 and no message."""
    try:
        yield
    except TellbackError as error:
        fail(format_error(error))
    except BrokenPipeError:
        raise  # the reader closed the pipe: typer exits without a message
    except TimeoutError as error:
        fail(str(error))
    except OSError as error:
        location = f"Cannot access {error.filename}: " if error.filename else ""
        fail(f"{location}{error.strerror or error}.")
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPT_EXIT_CODE) from None


def run_async(work: Callable[[], Awaitable[T]]) -> T:
    """Run the asynchronous part of a command and report its errors."""

    async def run_work() -> T:
        return await work()

    with report_errors():
        return asyncio.run(run_work())


@asynccontextmanager
async def open_app(
    url: str, *, may_create: bool = False, allow_in_memory: bool = False, **options: Any
) -> AsyncIterator[Tellback]:
    """Open the store and close it afterwards. A missing store is created only with `may_create`."""
    from tellback.app import Tellback
    from tellback.cli.diagnostics import validate_store_file

    validate_store_file(url, may_create=may_create)
    tb = Tellback(url, **{"worker": False, **options})
    if tb.store.url.endswith(":memory:") and not allow_in_memory:
        raise ConfigurationError("An in-memory store is lost when this command exits: pass a file, or postgresql://…")
    async with tb:
        yield tb


def run_for_user(target: UserTarget, work: Callable[[User], Awaitable[T]], *, may_create: bool = False) -> T:
    """Run `work` with the user's handle in an open store, and return its result."""

    async def run_work() -> T:
        async with open_app(target.url, may_create=may_create) as tb:
            return await work(user_of_target(tb, target))

    return run_async(run_work)


def user_of_target(tb: Tellback, target: UserTarget) -> User:
    """Return the user's handle."""
    return tb.user(target.user, target.tenant, target.app)


async def resolve_space(user: User, name_or_id: str | None, *, may_create: bool = False) -> MemorySpace:
    """Return the space with this name or id. Without one, return the space "default", or the only space.

    With `may_create`, a missing space is created.
    """
    spaces = await user.memory.list_spaces()
    name = name_or_id or "default"
    for space in spaces:
        if name in (space.id, space.name):
            return space
    if name_or_id is None and len(spaces) == 1:
        return spaces[0]
    if may_create and (name_or_id is None or not name_or_id.startswith("ms_")):
        return await user.memory.create_space(name, once=True)
    if not spaces:
        raise ConfigurationError(format_missing_data(user, "memory space"))
    names = ", ".join(repr(space.name) for space in spaces)
    raise NotFoundError("memory space", name, f"Available spaces: {names}. Choose one with --space.")


def format_missing_data(user: User, kind: str) -> str:
    """Return a message that the user has no such data, with the options that may be mistyped."""
    scope = user.scope
    place = format_scope(scope.tenant_id, scope.app_id)
    return f"User {scope.user_id!r}{place} has no {kind}. Check --user, --tenant, --app and --url."


def format_scope(tenant: str, app: str) -> str:
    """Return the tenant and app for a message, or an empty string for the default ones."""
    return "" if (tenant, app) == ("default", "default") else f" in tenant {tenant}, app {app}"


def probe_port(port: int) -> OSError | None:
    """Return the error from binding a local port, or None if the port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCAL_HOST, port))
        except OSError as error:
            return error
    return None


@contextmanager
def stop_on_signals() -> Iterator[asyncio.Event]:
    """Yield an event that SIGINT or SIGTERM sets; a second signal terminates the process immediately."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)

    def on_signal() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)

    with suppress(NotImplementedError):  # on Windows, Ctrl-C cancels this task instead
        for number in signals:
            loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        if not stop.is_set():
            with suppress(NotImplementedError):
                for number in signals:
                    loop.remove_signal_handler(number)


async def run_or_stop(work: Awaitable[object], stop: asyncio.Event) -> bool:
    """Run `work` and return True, or cancel it and return False once `stop` is set."""
    task, stop_task = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(task, stop_task)
    if not task.cancelled():
        task.result()
    return not task.cancelled()
