"""Adapters that store the sessions of agents: one protocol, and an implementation for each database.

`tellback.agent` and everything above it may import it; it imports `tellback.stores` and below. Drivers are imported by
the sub-packages only, so that importing this package stays light."""
