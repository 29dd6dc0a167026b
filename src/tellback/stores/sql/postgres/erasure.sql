-- Concurrent writers wait for these locks, and then find the rows deleted.

-- name: platform_queue_exists^
-- Only our own queue, not one of another program in a schema on the search path.
SELECT to_regclass(quote_ident(current_schema()) || '.procrastinate_jobs') IS NOT NULL AS found;

-- name: platform_queue_delete_deliveries!
-- A running job ends when it finds that its row is deleted.
DELETE FROM procrastinate_jobs WHERE queueing_lock = ANY(CAST(:ids AS TEXT[])) AND status = 'todo';

