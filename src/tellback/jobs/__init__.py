"""Jobs: work that is stored until it is done, and the workers that run it.

The package has the `tb.jobs` handle, the runner, and a worker for each kind of store. `runtime`, `wire`, `server`,
`app`, `cli` and `testing` import it.
"""

from tellback.jobs.handle import Jobs
from tellback.jobs.runner import Handler, PostponeJob, WorkerOptions
from tellback.jobs.worker import Schedule, Worker, open_worker

__all__ = ["Handler", "Jobs", "PostponeJob", "Schedule", "Worker", "WorkerOptions", "open_worker"]
