"""The `tellback keys` commands: create, list and revoke API keys of a server."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tellback.cli.options import JsonOption, RequiredUrlOption
from tellback.cli.output import print_json, print_outcome, print_table, to_json_value
from tellback.cli.runner import command_group, fail, open_app, register_command, run_async
from tellback.errors import NotFoundError
from tellback.types.access import ApiKey, ApiKeyRole
from tellback.types.ids import utc_now

if TYPE_CHECKING:
    from tellback.api_keys import Keys

T = TypeVar("T")

keys_app = command_group("Create, list and revoke API keys of a server.", "tellback keys create --url tellback.db")

_DURATION = re.compile(r"(\d{1,5})\s*([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _parse_expiry(text: str) -> datetime | timedelta:
    duration = _DURATION.fullmatch(text.strip().lower())
    if duration is not None:
        return timedelta(**{_UNITS[duration[2]]: int(duration[1])})
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a duration, such as 90d or 12h, nor a date, such as 2027-01-01."
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@register_command(
    keys_app,
    "tellback keys create --url tellback.db --name laptop --expires 90d",
    "tellback keys create --url tellback.db --role user --user maya",
)
def create(
    url: RequiredUrlOption,
    role: Annotated[
        ApiKeyRole,
        typer.Option(
            help="user: data of one user; app: data of all users of the app; admin: the same, and keys, jobs,"
            " exports and deletion."
        ),
    ] = "app",
    tenant: Annotated[str, typer.Option(help="Tenant of the key.")] = "default",
    app_id: Annotated[str, typer.Option("--app", help="App of the key.")] = "default",
    user: Annotated[str | None, typer.Option(help="User of the key; required with --role user.")] = None,
    name: Annotated[str, typer.Option(help="A name that helps you recognize the key.")] = "",
    expires: Annotated[
        datetime | None,
        typer.Option(
            parser=_parse_expiry, metavar="90d|2027-01-01", help="When the key expires: 90d (after 90 days), or a date."
        ),
    ] = None,
    rate_limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of requests per minute. Default: the limit of the server.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create an API key and print its secret. The secret cannot be shown again."""
    if (role == "user") != (user is not None):
        raise typer.BadParameter("--role user and --user must be used together.")
    created = _run_with_keys(
        url,
        lambda keys: keys.create(
            role,
            name=name,
            tenant_id=tenant,
            app_id=app_id,
            user_id=user,
            expires_at=expires,
            rate_limit=rate_limit,
        ),
        may_create=True,
    )
    if as_json:
        print_json({**to_json_value(created.key), "secret": created.secret})
    else:
        typer.echo(created.secret)
    typer.secho(f"Created API key {created.key.id}. Save the secret now: it cannot be shown again.", err=True)


@register_command(keys_app, "tellback keys list --url tellback.db", name="list")
def list_keys(
    url: RequiredUrlOption,
    tenant: Annotated[str | None, typer.Option(help="Only keys of this tenant.")] = None,
    app_id: Annotated[str | None, typer.Option("--app", help="Only keys of this app.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List API keys, including expired and revoked ones, oldest first."""
    found = _run_with_keys(url, lambda keys: keys.list(tenant, app_id))
    if as_json:
        print_json(found)
        return
    now = utc_now()
    print_table(("ID", "ROLE", "SCOPE", "STATUS", "NAME"), [_key_row(key, now) for key in found], title_column="ID")


@register_command(keys_app, "tellback keys revoke --url tellback.db key_01J9")
def revoke(
    url: RequiredUrlOption,
    id: Annotated[str, typer.Argument(help="Key id, as shown by `tellback keys list`.")],
    tenant: Annotated[str | None, typer.Option(help="Revoke the key only if it belongs to this tenant.")] = None,
    app_id: Annotated[str | None, typer.Option("--app", help="Revoke the key only if it belongs to this app.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke an API key permanently. A running server rejects it within seconds."""
    key = _run_with_keys(url, lambda keys: keys.revoke(id, tenant_id=tenant, app_id=app_id))
    print_outcome(key, f"Revoked {key.id}.", as_json=as_json)


def _run_with_keys(url: str, work: Callable[[Keys], Awaitable[T]], *, may_create: bool = False) -> T:
    """Run `work` with the keys of a store. With `may_create`, a missing store is created."""

    async def run_work() -> T:
        async with open_app(url, may_create=may_create, embedder=None) as tb:
            try:
                return await work(tb.keys)
            except NotFoundError as error:
                fail(f"There is no API key {error.id!r} in this store.")

    return run_async(run_work)


def _key_row(key: ApiKey, now: datetime) -> tuple[str, str, str, str, str]:
    holder = "/".join(part for part in (key.tenant_id, key.app_id, key.user_id) if part is not None)
    return key.id, key.role, holder, _format_state(key, now), key.name


def _format_state(key: ApiKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return f"revoked {key.revoked_at:%Y-%m-%d}"
    if key.expires_at is None:
        return "valid"
    return f"{'expired' if key.is_expired(now) else 'valid until'} {key.expires_at:%Y-%m-%d}"
