"""Conversations: the log of what was said, the turns that write it, and its rolling summary."""

from tellback.conversations.conversations import Conversations

__all__ = ["Conversations"]
