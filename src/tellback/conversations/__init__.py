"""`user.conversations`: create, read, append to and close conversations, and their rolling summaries.

The user handle, importers and the server import this package; `tellback.turns` runs turns.
"""

from tellback.conversations.conversations import Conversations

__all__ = ["Conversations"]
