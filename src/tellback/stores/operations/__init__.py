"""Operations in SQL, a module for each aggregate: generators of named statements, and the classes that run them.

They know no driver: nothing here imports `sqlite`, `postgres` or their drivers.
Only `tellback.stores` imports this package.
"""
