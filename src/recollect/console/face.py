"""How the console is put on a server."""

from __future__ import annotations

from fastapi import FastAPI

from recollect.errors import MissingExtraError

PATH = "/console"


class ConsoleFace:
    """The console's pages, below `/console`. NiceGUI holds one set of pages for a process, so there is one console."""

    path = PATH

    def __init__(self) -> None:
        from nicegui import __version__

        # What comes with NiceGUI is for everyone. What pages hand out by its other paths is not.
        self.assets: tuple[str, ...] = (f"{PATH}/_nicegui/{__version__}/",)

    def add_to(self, app: FastAPI) -> None:
        """Mount the pages on a server's app."""
        from nicegui import ui

        from recollect.console import pages  # they register themselves

        assert pages
        ui.run_with(
            app,
            mount_path=PATH,
            title="Recollect",
            favicon="💬",
            dark=None,
            tailwind=False,
            show_welcome_message=False,
            reconnect_timeout=30,
        )


def console_face() -> ConsoleFace:
    """The console, if what it is made with is installed; raises `MissingExtraError`."""
    try:
        import nicegui  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "nicegui":
            raise
        raise MissingExtraError("nicegui", "console", "The console") from error
    return ConsoleFace()
