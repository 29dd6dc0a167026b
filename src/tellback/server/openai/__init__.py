"""The OpenAI-compatible interface: `/v1/chat/completions` and `/v1/models`, with memory behind them.

Imported by `server.app` and `server.routes`.
"""
