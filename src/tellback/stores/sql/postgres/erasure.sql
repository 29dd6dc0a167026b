-- Whoever would add to them waits, and then finds them gone.

-- name: platform_queue_exists^
-- Ours, and not one that somebody else has where we look for extensions.
SELECT to_regclass(quote_ident(current_schema()) || '.procrastinate_jobs') IS NOT NULL AS found;

-- name: platform_queue_delete_deliveries!
-- What is at work ends by itself when it finds its job gone.
DELETE FROM procrastinate_jobs WHERE queueing_lock = ANY(CAST(:ids AS TEXT[])) AND status = 'todo';

