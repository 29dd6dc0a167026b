"""Operations in SQL, one module for each aggregate: generators of named statements, and the classes that run them.

Nothing here imports `sqlite`, `postgres` or their drivers. Only `tellback.stores` imports this package.
"""
