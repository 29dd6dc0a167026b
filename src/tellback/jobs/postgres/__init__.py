"""Jobs on PostgreSQL: procrastinate brings them to any number of workers."""

from tellback.jobs.postgres.worker import QueueWorker

__all__ = ["QueueWorker"]
