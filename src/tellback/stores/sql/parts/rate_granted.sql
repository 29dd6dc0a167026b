CASE
    WHEN rate_windows.taken >= CAST(:most AS BIGINT) THEN 0
    WHEN rate_windows.taken + CAST(:wanted AS BIGINT) > CAST(:most AS BIGINT) THEN CAST(:most AS BIGINT) - rate_windows.taken
    ELSE CAST(:wanted AS BIGINT)
END
