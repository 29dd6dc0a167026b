-- name: platform_named_lock!
-- No lock needed: SQLite has one writer at a time.
SELECT 1;

