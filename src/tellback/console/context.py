"""The context of one page: its credential, the user it shows, and how its errors are reported."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from nicegui import ui
from starlette.requests import Request

from tellback.app import Tellback
from tellback.chat_backends import ServedAgent
from tellback.errors import (
    ProviderAuthError,
    ProviderConnectionError,
    ProviderOverloadedError,
    ProviderRateLimitError,
    ProviderTimeoutError,
    TellbackError,
)
from tellback.server.auth import Caller
from tellback.server.problems import public_message
from tellback.server.tenant_agents import TenantAgents
from tellback.user import User

if TYPE_CHECKING:
    from tellback.agent import Agent

log = logging.getLogger("tellback.console")

EXTRACTION_WAIT_SECONDS = 60.0
"""How long a page waits for the extraction of a closed conversation."""

SERVER_FAILED = "An error happened on the server. The reason is in the server log."

_ADVICE: Mapping[type[TellbackError], str] = {
    ProviderAuthError: "Set a valid key in the server's environment and restart the server.",
    ProviderConnectionError: "Check that the server can reach the provider or Ollama, then try again.",
    ProviderTimeoutError: "Try again later.",
    ProviderRateLimitError: "Wait a moment, then try again.",
    ProviderOverloadedError: "Wait a moment, then try again.",
}
"""Advice for errors whose own message does not say what to do."""


@dataclass(frozen=True, eq=False)
class PageContext:
    """A page's view of the server, limited to what its credential allows.

    `query` has the page's query parameters. `?user=` selects the user, so that links can be bookmarked and two tabs can
    show two users. A credential that belongs to one user always shows that user. `cookies` are the browser's cookies.
    """

    caller: Caller
    query: Mapping[str, str]
    _is_still_valid: Callable[..., Awaitable[bool]]
    _count_request: Callable[[], Awaitable[None]]
    _tenant_agents: TenantAgents
    cookies: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_request(cls, request: Request) -> PageContext:
        """Create the context of a request that has passed the credential check."""
        state = request.scope["state"]
        return cls(
            state["caller"],
            dict(request.query_params),
            state["is_still_valid"],
            state["count"],
            TenantAgents.for_app(state["server"]),
            request.cookies,
        )

    @property
    def tb(self) -> Tellback:
        return self.caller.server.tb

    @property
    def agents(self) -> Mapping[str, Agent]:
        return self.caller.server.agents

    def served_agent(self, agent: str) -> ServedAgent:
        """Return an agent with routes, as this server runs it for the page's user; raises `NotFoundError`."""
        return self._tenant_agents.agent(Caller(self.caller.server, self.caller.principal, self.user_id), agent)

    @property
    def user_id(self) -> str | None:
        """The id of the page's user; None if the credential allows any user and the address names no user."""
        return self.caller.principal.user_id or self.query.get("user") or self.caller.user_id

    @property
    def user(self) -> User:
        """The handle of the page's user; raises `NotAllowedError` or `InvalidArgumentError`."""
        return self.caller.user if self.user_id is None else self.caller.user_handle(self.user_id)

    def link(self, path: str, **query: str | None) -> str:
        """Return the address of a console page for the same user: `ctx.link("/atom", id=atom.id)`.

        The address is relative, because all pages are siblings. NiceGUI adds its own prefix to some addresses that
        begin with a slash, and a proxy may add another.
        """
        parameters = {"user": self.query.get("user"), **query}
        present = {name: value for name, value in parameters.items() if value is not None}
        return f".{path}" + (f"?{urlencode(present)}" if present else "")

    def error_text(self, error: TellbackError) -> str:
        """Return the message of an error. Admins see the whole text; others see what the REST API would return."""
        if not self.caller.is_admin:
            return public_message(error)
        advice = next((text for kind, text in _ADVICE.items() if isinstance(error, kind)), None)
        text = str(error).strip()
        return text if advice is None else f"{text}{'' if text.endswith(('.', '!', '?')) else '.'} {advice}"

    async def check_credential(self) -> None:
        """Leave the page if its credential is no longer valid. The check does not extend an idle session."""
        try:
            is_valid = await self._is_still_valid(is_used=False)
        except TellbackError as error:  # the page stays, but every handler checks the credential again
            log.warning("could not check the credential of an open page: %s", error)
            return
        if not is_valid:
            ui.navigate.to(self.link("/"))

    def guard(self, handler: Callable[..., Any], *, is_background: bool = False) -> Callable[..., Awaitable[None]]:
        """Wrap an event handler: it runs only while the credential is valid, and errors are shown as a notification.

        Wrap every handler that reads or changes data. Each call counts as a request of the credential. Background work
        (`is_background`), such as a periodic refresh, does not count, and its errors are only logged.
        """
        parameter_count = len(inspect.signature(handler).parameters)

        async def guarded(*arguments: Any) -> None:
            try:
                if not await self._is_still_valid(is_used=not is_background):
                    ui.navigate.to(self.link("/"))  # the server redirects to the sign-in page
                    return
                if not is_background:
                    await self._count_request()
                outcome = handler(*arguments[:parameter_count])
                if inspect.isawaitable(outcome):
                    await outcome
            except TellbackError as error:
                if is_background:
                    log.warning("could not refresh an open page: %s", error)
                else:
                    notify(self.error_text(error), is_error=True)
            except Exception:
                if not is_background:
                    notify(SERVER_FAILED, is_error=True)
                raise

        return guarded


def notify(text: str, *, is_error: bool = False) -> None:
    """Show a notification. Errors stay until the user closes them."""
    if is_error:
        ui.notify(text, type="negative", timeout=0, close_button="OK", multi_line=True, position="top")
    else:
        ui.notify(text, type="positive", position="top")
