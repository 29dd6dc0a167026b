"""The console: pages in a browser, on the same server and behind the same credentials.

>>> from recollect import Recollect
>>> from recollect.console import ConsoleFace
>>> from recollect.server import create_app
>>> app = create_app(Recollect(":memory:"), faces=[ConsoleFace()])
"""

from recollect.console.face import ConsoleFace, console_face

__all__ = ["ConsoleFace", "console_face"]
