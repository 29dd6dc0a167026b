"""A user's rights over what is kept: to have all of it handed out, and to have it erased."""

from recollect.admin.admin import Admin, follow_erasures
from recollect.admin.erased import Erased
from recollect.admin.export import ExportReport

__all__ = ["Admin", "Erased", "ExportReport", "follow_erasures"]
