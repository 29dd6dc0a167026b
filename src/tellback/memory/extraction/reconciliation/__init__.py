"""Reconciliation of extracted facts with what a space holds: plan first, then apply in one transaction.

Only `reconciler` does I/O. Used by `tellback.memory.extraction.service`."""
