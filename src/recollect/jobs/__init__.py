"""Jobs: work that is kept until it is done, and the workers that do it."""

from recollect.jobs.handle import Jobs
from recollect.jobs.options import WorkerOptions
from recollect.jobs.runner import Handler, Postponed
from recollect.jobs.schedule import Schedule
from recollect.jobs.starting import open_worker
from recollect.jobs.worker import Worker

__all__ = ["Handler", "Jobs", "Postponed", "Schedule", "Worker", "WorkerOptions", "open_worker"]
