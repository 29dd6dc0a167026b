"""Stands in until it is written."""
from recollect.stores import Reconciliation


def mine(episodes, existing, *, at_least=3, exclude=frozenset()):  # type: ignore
    return Reconciliation()
