"""Embedders: what turns texts into vectors."""
