"""What an erasure deleted."""

from __future__ import annotations

from typing import Any


class ErasureReport(dict[str, int]):
    """How many rows of each table were deleted. `job_ids` are those of the jobs among them.

    >>> ErasureReport({"messages": 2}).deleted["messages"]
    2
    """

    def __init__(self, counts: Any = (), job_ids: tuple[str, ...] = ()) -> None:
        super().__init__(counts)
        self.job_ids = job_ids

    @property
    def deleted(self) -> ErasureReport:
        """The same, for whoever reads better so."""
        return self
