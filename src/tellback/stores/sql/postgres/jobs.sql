-- name: platform_named_lock^
SELECT pg_advisory_xact_lock(hashtext('tellback.platform_state.' || CAST(:name AS TEXT)), hashtext(current_schema()));

