"""Import chat history from exports of ChatGPT and Claude, and from JSON Lines.

`import_chats(user, "export.zip")` imports an export; `read_chats("export.zip")` only reads its chats. The package
imports only `types`, `errors`, `concurrency` and `validation`, because it works on user handles (`ImportUser`)."""

from tellback.importers.chats import Format, ImportedChat, ImportedMessage, ImportProgress, ImportReport
from tellback.importers.export import read_chats
from tellback.importers.importer import import_chats

__all__ = ["Format", "ImportProgress", "ImportReport", "ImportedChat", "ImportedMessage", "import_chats", "read_chats"]
