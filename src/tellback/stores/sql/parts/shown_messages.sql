(visibility = 'user'
    OR (visibility = 'internal' AND CAST(:internal AS BIGINT) = 1)
    OR (visibility = 'hidden' AND CAST(:hidden AS BIGINT) = 1))
