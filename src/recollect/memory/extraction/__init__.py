"""Extraction: conversations become memories."""
