"""Jobs: work that is kept until it is done, and the workers that do it."""

from tellback.jobs.handle import Jobs
from tellback.jobs.runner import Handler, Postponed, WorkerOptions
from tellback.jobs.scheduler import Schedule
from tellback.jobs.worker import Worker, open_worker

__all__ = ["Handler", "Jobs", "Postponed", "Schedule", "Worker", "WorkerOptions", "open_worker"]
