-- No locks needed: SQLite has one writer at a time.

-- name: platform_queue_exists^
SELECT 0 AS found;

