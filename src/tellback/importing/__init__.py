"""Bringing in what was said elsewhere: exports of ChatGPT and Claude, and plain JSON lines.

`import_chats(user, "export.zip")` does it all; `read_chats("export.zip")` gives the chats to look at.
"""

from tellback.importing.importer import import_chats
from tellback.importing.reading import read_chats
from tellback.importing.values import Format, ImportedChat, ImportedMessage, ImportProgress, ImportReport

__all__ = ["Format", "ImportProgress", "ImportReport", "ImportedChat", "ImportedMessage", "import_chats", "read_chats"]
