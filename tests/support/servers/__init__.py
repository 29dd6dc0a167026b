"""Real database servers for tests: each in a temporary folder, on its own port, on loopback only."""
