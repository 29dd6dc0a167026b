"""`tellback keys`: create, list and revoke API keys of a server."""

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

keys_app = command_group("Make, list and revoke API keys of a server.", "tellback keys create --url tellback.db")

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
            f"{text!r} is neither a length of time, such as 90d or 12h, nor a date, such as 2027-01-01."
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@register_command(
    keys_app,
    "tellback keys create --url tellback.db --name laptop --expires 90d",
    "tellback keys create --url tellback.db --role user --user maya",
)
def create(
    url: RequiredUrlOption,
    role: Annotated[ApiKeyRole, typer.Option(help="One user, any user of the app, or who runs it.")] = "app",
    tenant: Annotated[str, typer.Option(help="The tenant it is for.")] = "default",
    app_id: Annotated[str, typer.Option("--app", help="The app it is for.")] = "default",
    user: Annotated[str | None, typer.Option(help="The one user it is for, with --role user.")] = None,
    name: Annotated[str, typer.Option(help="What you will know it by.")] = "",
    expires: Annotated[
        datetime | None,
        typer.Option(parser=_parse_expiry, metavar="90d|2027-01-01", help="After how long, or when, it expires."),
    ] = None,
    rate_limit: Annotated[int | None, typer.Option(min=1, help="Requests a minute.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key, and print its secret: this once."""
    if (role == "user") != (user is not None):
        raise typer.BadParameter("--role user and --user go together: such a key is fixed to one user.")
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
    )
    if as_json:
        print_json({**to_json_value(created.key), "secret": created.secret})
    else:
        typer.echo(created.secret)
    typer.secho(f"This is the secret of {created.key.id}: keep it now, it cannot be shown again.", err=True)


@register_command(keys_app, "tellback keys list --url tellback.db", name="list")
def list_keys(
    url: RequiredUrlOption,
    tenant: Annotated[str | None, typer.Option(help="Keys of this tenant alone.")] = None,
    app_id: Annotated[str | None, typer.Option("--app", help="Keys of this app alone.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List keys, also those that are over, the oldest first."""
    found = _run_with_keys(url, lambda keys: keys.list(tenant, app_id))
    if as_json:
        print_json(found)
        return
    now = utc_now()
    print_table(("ID", "ROLE", "FOR", "STATE", "NAME"), [_key_row(key, now) for key in found], title_column="ID")


@register_command(keys_app, "tellback keys revoke --url tellback.db key_01J9")
def revoke(
    url: RequiredUrlOption,
    id: Annotated[str, typer.Argument(help="The key's id, as `tellback keys list` shows it.")],
    tenant: Annotated[str | None, typer.Option(help="Only if it is of this tenant.")] = None,
    app_id: Annotated[str | None, typer.Option("--app", help="Only if it is of this app.")] = None,
    as_json: JsonOption = False,
) -> None:
    """End a key for good. Servers that run notice within seconds."""
    key = _run_with_keys(url, lambda keys: keys.revoke(id, tenant_id=tenant, app_id=app_id))
    print_outcome(key, f"{key.id} is revoked.", as_json=as_json)


def _run_with_keys(url: str, work: Callable[[Keys], Awaitable[T]]) -> T:
    """Run `work` with the keys of a store, which is created if it is missing."""

    async def run_work() -> T:
        async with open_app(url, may_create=True, embedder=None) as tb:
            try:
                return await work(tb.keys)
            except NotFoundError as error:
                fail(f"There is no API key {error.id!r} there.")

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
