"""Who may use a server: API keys, made, checked and revoked."""

from tellback.access.api_keys import Keys

__all__ = ["Keys"]
