-- name: platform_events_lock^
SELECT pg_advisory_xact_lock(hashtext('recollect.events'), hashtext(current_schema()));

-- name: platform_events_sequence
UPDATE events
SET position = placed.position
FROM (
    SELECT id, nextval('event_positions') AS position
    FROM (SELECT id FROM events WHERE position IS NULL ORDER BY id LIMIT 5000) AS waiting
) AS placed
WHERE events.id = placed.id
RETURNING events.id;
