"""The context of one page: its credential, the user it shows, and how its errors are reported."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
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
"""How long a page waits for a closed conversation to become memories."""

SERVER_FAILED = "The server failed: its log has the reason."

_ADVICE: Mapping[type[TellbackError], str] = {
    ProviderAuthError: "Set a key that is valid where the server runs, and start it again.",
    ProviderConnectionError: "Look whether the provider, or the Ollama, can be reached from the server, and try again.",
    ProviderTimeoutError: "Try again in a while.",
    ProviderRateLimitError: "Wait a while, and try again.",
    ProviderOverloadedError: "Wait a while, and try again.",
}
"""What to do where an error's own words do not say it."""


@dataclass(frozen=True, eq=False)
class PageContext:
    """A page's view of the server, as its credential allows.

    `query` is the page's own part of its address. Whose memory it is stands there as well (`?user=`), so that a link
    can be kept and two tabs can show two users; a credential that is fixed to one user shows that one only.
    """

    caller: Caller
    query: Mapping[str, str]
    _is_still_valid: Callable[..., Awaitable[bool]]
    _count_request: Callable[[], Awaitable[None]]
    _tenant_agents: TenantAgents

    @classmethod
    def from_request(cls, request: Request) -> PageContext:
        """The context of a request that has passed the credential check."""
        state = request.scope["state"]
        return cls(
            state["caller"],
            dict(request.query_params),
            state["is_still_valid"],
            state["count"],
            TenantAgents.for_app(state["server"]),
        )

    @property
    def tb(self) -> Tellback:
        return self.caller.server.tb

    @property
    def agents(self) -> Mapping[str, Agent]:
        return self.caller.server.agents

    def served_agent(self, agent: str) -> ServedAgent:
        """An agent with routes, as this server runs it for the page's user; raises `NotFoundError`."""
        return self._tenant_agents.agent(Caller(self.caller.server, self.caller.principal, self.user_id), agent)

    @property
    def user_id(self) -> str | None:
        """Whom the page is about; None if the credential is for any user and none was named."""
        return self.caller.principal.user_id or self.query.get("user") or self.caller.user_id

    @property
    def user(self) -> User:
        """The handle of that user; raises `NotAllowedError` or `InvalidArgumentError`."""
        return self.caller.user if self.user_id is None else self.caller.user_handle(self.user_id)

    def link(self, path: str, **query: str | None) -> str:
        """The address of a page of the console, for the same user: `ctx.link("/atom", id=atom.id)`.

        It is relative to the pages, which are all beside each other: NiceGUI puts its own path before some addresses
        that begin with a slash, and a proxy may put another.
        """
        parameters = {"user": self.query.get("user"), **query}
        present = {name: value for name, value in parameters.items() if value is not None}
        return f".{path}" + (f"?{urlencode(present)}" if present else "")

    def error_text(self, error: TellbackError) -> str:
        """What is wrong, in a sentence. Those who run the server are told all of it; others what REST would say."""
        if not self.caller.is_admin:
            return public_message(error)
        advice = next((text for kind, text in _ADVICE.items() if isinstance(error, kind)), None)
        text = str(error).strip()
        return text if advice is None else f"{text}{'' if text.endswith(('.', '!', '?')) else '.'} {advice}"

    async def check_credential(self) -> None:
        """Leave a page whose credential holds no more. To look is not to use it: an idle browser is logged out."""
        try:
            is_valid = await self._is_still_valid(is_used=False)
        except TellbackError as error:  # it cannot be told now: nothing is done on the page either until it can
            log.warning("whether an open page's credential holds is unknown: %s", error)
            return
        if not is_valid:
            ui.navigate.to(self.link("/"))

    def guard(self, handler: Callable[..., Any], *, is_background: bool = False) -> Callable[..., Awaitable[None]]:
        """An event handler whose errors are told in one sentence, and which acts only while the credential holds.

        All handlers that read or change something go through it. What a page does in the background (`is_background`),
        such as looking again now and then, is no use of the credential, and its errors are in the log, as nobody wants
        to be told again and again; everything else counts as a request of it.
        """
        parameter_count = len(inspect.signature(handler).parameters)

        async def guarded(*arguments: Any) -> None:
            try:
                if not await self._is_still_valid(is_used=not is_background):
                    ui.navigate.to(self.link("/"))  # where the server asks for another one
                    return
                if not is_background:
                    await self._count_request()
                outcome = handler(*arguments[:parameter_count])
                if inspect.isawaitable(outcome):
                    await outcome
            except TellbackError as error:
                if is_background:
                    log.warning("an open page could not look again: %s", error)
                else:
                    notify(self.error_text(error), is_error=True)
            except Exception:
                if not is_background:
                    notify(SERVER_FAILED, is_error=True)
                raise

        return guarded


def notify(text: str, *, is_error: bool = False) -> None:
    """Show a sentence for a while; what is wrong stays until it is read."""
    if is_error:
        ui.notify(text, type="negative", timeout=0, close_button="OK", multi_line=True, position="top")
    else:
        ui.notify(text, type="positive", position="top")
