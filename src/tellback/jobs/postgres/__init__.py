"""Jobs on PostgreSQL: procrastinate brings them to any number of workers.

`queue` is heavy and imported only when a worker starts. Imported by `tellback.jobs.worker` alone.
"""

from tellback.jobs.postgres.worker import QueueWorker

__all__ = ["QueueWorker"]
