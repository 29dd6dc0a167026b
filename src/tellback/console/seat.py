"""Who sits before a page: their credential, whose memory they look at, and how what they do goes wrong."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from nicegui import ui
from starlette.requests import Request

from tellback.app import Tellback
from tellback.errors import (
    NotAllowedError,
    ProviderAuthError,
    ProviderConnectionError,
    ProviderOverloadedError,
    ProviderRateLimitError,
    ProviderTimeoutError,
    TellbackError,
)
from tellback.server.callers import Caller
from tellback.server.problems import told
from tellback.server.serving import Served, Serving
from tellback.user import User

if TYPE_CHECKING:
    from tellback.agent import Agent

log = logging.getLogger("tellback.console")

FAILED = "The server failed: its log has the reason."


_ADVICE: Mapping[type[TellbackError], str] = {
    ProviderAuthError: "Set a key that is valid where the server runs, and start it again.",
    ProviderConnectionError: "Look whether the provider, or the Ollama, can be reached from the server, and try again.",
    ProviderTimeoutError: "Try again in a while.",
    ProviderRateLimitError: "Wait a while, and try again.",
    ProviderOverloadedError: "Wait a while, and try again.",
}
"""What to do where an error's own words do not say it."""


class Seat:
    """A page's view of the server, as its credential allows.

    `query` is the page's own part of its address. Whose memory it is stands there as well (`?user=`), so that a link
    can be kept and two tabs can show two users; a credential that is fixed to one user shows that one only.
    """

    def __init__(
        self,
        caller: Caller,
        query: Mapping[str, str],
        is_still_valid: Callable[..., Awaitable[bool]],
        count: Callable[[], Awaitable[None]],
        serving: Serving,
    ) -> None:
        self.caller = caller
        self.query = query
        self._is_still_valid = is_still_valid
        self._count = count
        self._serving = serving

    @classmethod
    def of(cls, request: Request) -> Seat:
        """The seat of a request that the reception let in."""
        state = request.scope["state"]
        return cls(
            state["caller"],
            dict(request.query_params),
            state["is_still_valid"],
            state["count"],
            Serving.of(state["server"]),
        )

    @property
    def rc(self) -> Tellback:
        """The Tellback that is served."""
        return self.caller.home.rc

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents with routes that are served."""
        return self.caller.home.agents

    def served(self, agent: str) -> Served:
        """An agent with routes, as this server runs it for the page's user; raises `NotFoundError`."""
        return self._serving.agent(Caller(self.caller.home, self.caller.principal, self.user_id), agent)

    @property
    def user_id(self) -> str | None:
        """Whom the page is about; None if the credential is for any user and none was named."""
        return self.caller.principal.user_id or self.query.get("user") or self.caller.user_id

    @property
    def user(self) -> User:
        """The handle of that user; raises `NotAllowedError` or `InvalidArgumentError`."""
        return self.caller.user if self.user_id is None else self.caller.user_of(self.user_id)

    @property
    def may_choose(self) -> bool:
        """Whether the credential is for any user of its app."""
        return self.caller.principal.user_id is None

    @property
    def is_open(self) -> bool:
        """Whether everyone on this machine is let in, so that nobody logs out."""
        return self.caller.home.settings.open

    def link(self, path: str, **query: str | None) -> str:
        """The address of a page of the console, for the same user: `seat.link("/atom", id=atom.id)`.

        It is relative to the pages, which are all beside each other: NiceGUI puts its own path before some addresses
        that begin with a slash, and a proxy may put another.
        """
        named = {"user": self.query.get("user"), **query}
        given = {name: value for name, value in named.items() if value is not None}
        return f".{path}" + (f"?{urlencode(given)}" if given else "")

    def words(self, error: TellbackError) -> str:
        """What is wrong, in a sentence. Those who run the server are told all of it; others what REST would say."""
        if not self.caller.is_admin:
            return told(error)
        advice = next((text for kind, text in _ADVICE.items() if isinstance(error, kind)), None)
        text = str(error).strip()
        return text if advice is None else f"{text}{'' if text.endswith(('.', '!', '?')) else '.'} {advice}"

    async def check(self) -> None:
        """Leave a page whose credential holds no more. To look is not to use it: an idle browser is logged out."""
        try:
            holds = await self._is_still_valid(is_used=False)
        except TellbackError as error:  # it cannot be told now: nothing is done on the page either until it can
            log.warning("whether an open page's credential holds is unknown: %s", error)
            return
        if not holds:
            ui.navigate.to(self.link("/"))

    def doing(self, handler: Callable[..., Any], *, by_itself: bool = False) -> Callable[..., Awaitable[None]]:
        """An event handler whose errors are told in one sentence, and which acts only while the credential holds.

        All handlers that read or change something go through it. What a page does `by_itself`, such as looking again
        now and then, is no use of the credential, and its errors are in the log, as nobody wants to be told again and
        again; everything else counts as a request of it.
        """
        wanted = len(inspect.signature(handler).parameters)

        async def handle(*given: Any) -> None:
            try:
                if not await self._is_still_valid(is_used=not by_itself):
                    ui.navigate.to(self.link("/"))  # the reception asks for another one
                    return
                if not by_itself:
                    await self._count()
                outcome = handler(*given[:wanted])
                if inspect.isawaitable(outcome):
                    await outcome
            except TellbackError as error:
                if by_itself:
                    log.warning("an open page could not look again: %s", error)
                else:
                    tell(self.words(error), is_wrong=True)
            except Exception:
                if not by_itself:
                    tell(FAILED, is_wrong=True)
                raise

        return handle

    def require_admin(self) -> None:
        """Refuse whoever has no admin rights."""
        if not self.caller.is_admin:
            raise NotAllowedError("That page needs a credential with the role 'admin'.")


def tell(text: str, *, is_wrong: bool = False) -> None:
    """Show a sentence for a while; what is wrong stays until it is read."""
    if is_wrong:
        ui.notify(text, type="negative", timeout=0, close_button="OK", multi_line=True, position="top")
    else:
        ui.notify(text, type="positive", position="top")
