"""The databases that an agent's sessions can be kept in: one contract, and an adapter for each."""
