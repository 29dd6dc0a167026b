-- name: platform_named_lock!
-- The writer's transaction is the lock.
SELECT 1;

