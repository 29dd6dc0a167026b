"""A user's rights over what is kept: to have all of it handed out, and to have it erased."""

from tellback.admin.admin import Admin, ErasureReport, follow_erasures
from tellback.admin.export import ExportReport

__all__ = ["Admin", "ErasureReport", "ExportReport", "follow_erasures"]
