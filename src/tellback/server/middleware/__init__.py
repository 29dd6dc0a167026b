"""ASGI middleware, from the outermost: observability, OpenAI errors, CORS, auth (or browser auth), fast path.

Imported by `server.app` and `server.openapi`; the console uses `browser_auth` for its pages.
"""
