"""What a store must do: one protocol for each aggregate, with its contract.

`SqliteStore` and `PostgresStore` keep these promises, and `tellback.testing.stores` checks them for any other store.

Common to all methods: they are safe to call from many tasks at once. A change is durable when its call returns, and
undone as a whole when it raises. An id of another scope is treated exactly like one that does not exist. What goes
wrong below is raised as a `StoreError`, never as the driver's own error; after one, the store goes on working as soon
as its cause is gone.
"""
