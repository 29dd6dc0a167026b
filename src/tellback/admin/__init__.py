"""A user's rights over what is stored: to export all of it, and to have it erased; and the cost of model calls.

Imported by `app`, `user`, `client`, `wire` and `cli`.
"""

from tellback.admin.admin import Admin, ErasureReport, follow_erasures
from tellback.admin.export import ExportReport

__all__ = ["Admin", "ErasureReport", "ExportReport", "follow_erasures"]
