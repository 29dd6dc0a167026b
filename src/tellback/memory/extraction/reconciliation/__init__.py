"""Reconciliation of extracted facts with a space's atoms: plan the changes, then apply them in one transaction.

Only `reconciler` does I/O. `tellback.memory.extraction.service` uses this package.
"""
