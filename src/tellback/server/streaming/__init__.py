"""Streams: server-sent events, and the change feed that many clients follow.

Imported by routes and `server.openai`.
"""
