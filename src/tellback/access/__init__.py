"""Who may use a server: API keys, created, checked and revoked.

Imported by `app` and `cli`.
"""

from tellback.access.api_keys import Keys

__all__ = ["Keys"]
