"""The web console: pages on the same server, protected by the same credentials.

The commands `serve` and `demo` import it, and programs that serve it themselves:

>>> from tellback import Tellback
>>> from tellback.console import ConsoleUI
>>> from tellback.server import create_app
>>> app = create_app(Tellback(":memory:"), web_uis=[ConsoleUI()])
"""

from tellback.console.app import ConsoleUI, create_console_ui

__all__ = ["ConsoleUI", "create_console_ui"]
