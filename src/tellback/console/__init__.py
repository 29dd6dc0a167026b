"""The web console: pages in a browser, on the same server and behind the same credentials.

Imported by the commands `serve` and `demo`, and by programs that serve it themselves:

>>> from tellback import Tellback
>>> from tellback.console import ConsoleUI
>>> from tellback.server import create_app
>>> app = create_app(Tellback(":memory:"), web_uis=[ConsoleUI()])
"""

from tellback.console.app import ConsoleUI, create_console_ui

__all__ = ["ConsoleUI", "create_console_ui"]
