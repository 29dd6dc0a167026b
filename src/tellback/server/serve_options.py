"""What `tellback serve` is told, as a value that worker processes can be given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tellback.errors import ConfigurationError
from tellback.server.logs import LogFormat
from tellback.server.settings import JwtSettings, ServerSettings

if TYPE_CHECKING:
    from tellback.server.reception import WebUI


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve. `agents` are files, folders, or `module:attribute`; `models` may be named by callers besides
    `model`. `trust_proxy` are addresses of proxies whose word on who calls is taken. `faces` make pages for people.
    `open` is found out by `checked`, not given."""

    url: str = field(default="tellback.db", repr=False)
    host: str = "127.0.0.1"
    port: int = 8765
    workers: int = 1
    model: str | None = None
    models: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    extractor: Literal["llm", "verbatim"] | None = None
    prompts: str | None = None
    runs_jobs: bool = True
    jwt: JwtSettings | None = None
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    rate_limit: int | None = 600
    failure_limit: int | None = 60
    concurrency: int | None = 100
    body_bytes: int = 4_000_000
    text_length: int = 200_000
    page_size: int = 50
    largest_page: int = 200
    heartbeat_seconds: float = 15.0
    shutdown_seconds: float = 30.0
    metrics_token: str | None = field(default=None, repr=False)
    trust_proxy: tuple[str, ...] = ()
    log_format: LogFormat = "auto"
    verbose: bool = False
    web_uis: tuple[Callable[[], WebUI], ...] = ()
    open: bool = False

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigurationError(f"workers is at least 1, not {self.workers}.")
        if self.workers > 1 and not self.is_on_postgres:
            raise ConfigurationError(
                "Several workers need PostgreSQL (--url postgresql://…): one process serves a SQLite file."
            )
        if self.workers > 1 and self.web_uis:
            raise ConfigurationError("The console needs one process, as its pages live in it: leave out --workers.")
        if "*" in self.trust_proxy:
            raise ConfigurationError(
                "trust_proxy names a proxy's address: '*' would take everyone's word on who they are."
            )
        if self.shutdown_seconds < 0:
            raise ConfigurationError(f"shutdown_seconds is not below 0, as {self.shutdown_seconds} is.")

    @property
    def is_on_postgres(self) -> bool:
        """Whether the store is one that several processes can serve."""
        return self.url.startswith(("postgresql://", "postgres://"))

    @property
    def settings(self) -> ServerSettings:
        """The settings of the app."""
        return ServerSettings(
            open=self.open,
            jwt=self.jwt,
            models=self.models,
            cors_origins=self.cors_origins,
            allowed_hosts=self.allowed_hosts,
            rate_limit=self.rate_limit,
            failure_limit=self.failure_limit,
            concurrency=self.concurrency,
            body_bytes=self.body_bytes,
            text_length=self.text_length,
            page_size=self.page_size,
            largest_page=self.largest_page,
            heartbeat_seconds=self.heartbeat_seconds,
            shutdown_seconds=self.shutdown_seconds,
            metrics_token=self.metrics_token,
        )
