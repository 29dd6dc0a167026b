-- name: platform_events_lock^
SELECT pg_advisory_xact_lock(hashtext('tellback.events'), hashtext(current_schema()));

-- name: platform_events_sequence
-- MATERIALIZED: calls nextval once for each event, in this order. A joined subquery could call it again for each event.
WITH placed AS MATERIALIZED (
    SELECT id, nextval('event_positions') AS position
    FROM (SELECT id FROM events WHERE position IS NULL ORDER BY id LIMIT 5000) AS waiting
)
UPDATE events
SET position = placed.position
FROM placed
WHERE events.id = placed.id
RETURNING events.id;
