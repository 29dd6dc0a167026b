"""Real database servers for tests: each in a temporary folder, on a port of its own, on loopback only."""
