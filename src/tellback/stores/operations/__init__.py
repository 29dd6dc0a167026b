"""Operations in SQL, one module per aggregate: generators that yield named statements, and the classes that run them on an engine.
They know no driver: nothing here imports `sqlite`, `postgres` or their drivers.
Only `tellback.stores` imports this package."""
