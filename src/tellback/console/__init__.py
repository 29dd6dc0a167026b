"""The console: pages in a browser, on the same server and behind the same credentials.

>>> from tellback import Tellback
>>> from tellback.console import ConsoleFace
>>> from tellback.server import create_app
>>> app = create_app(Tellback(":memory:"), faces=[ConsoleFace()])
"""

from tellback.console.app import ConsoleUI, create_console_ui

__all__ = ["ConsoleUI", "create_console_ui"]
