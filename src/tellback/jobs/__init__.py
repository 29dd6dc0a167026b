"""Jobs: work that is kept until it is done, and the workers that do it."""

from tellback.jobs.handle import Jobs
from tellback.jobs.options import WorkerOptions
from tellback.jobs.runner import Handler, Postponed
from tellback.jobs.schedule import Schedule
from tellback.jobs.starting import open_worker
from tellback.jobs.worker import Worker

__all__ = ["Handler", "Jobs", "Postponed", "Schedule", "Worker", "WorkerOptions", "open_worker"]
