"""Import chat history: exports of ChatGPT and Claude, and plain JSON lines.

`import_chats(user, "export.zip")` does it all; `read_chats("export.zip")` gives the chats to look at. Imported by
the CLI and by programs; imports only `types`, `errors`, `concurrency` and `validation`, since it works on handles
(`ImportUser`)."""

from tellback.importers.chats import Format, ImportedChat, ImportedMessage, ImportProgress, ImportReport
from tellback.importers.export import read_chats
from tellback.importers.importer import import_chats

__all__ = ["Format", "ImportProgress", "ImportReport", "ImportedChat", "ImportedMessage", "import_chats", "read_chats"]
