"""Running a server: health, metrics, logs, the uvicorn server and the supervisor of worker processes.

Imported by `server.app` and the command line.
"""
