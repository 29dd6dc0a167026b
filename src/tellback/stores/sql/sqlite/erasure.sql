-- The writer's transaction is the lock.

-- name: platform_queue_exists^
SELECT 0 AS found;

