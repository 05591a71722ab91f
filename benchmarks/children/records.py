"""When each call was submitted, began, ended and came back; and what that says of a run."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["Records"]

_BUCKET = 0.1
_SHARES = {"p50": 50, "p99": 99}
_TAIL = 1 / 3

Times = np.ndarray[Any, np.dtype[np.float64]]


class Records:
    """The stamps of one phase's calls: cheap to add, summarised once."""

    def __init__(self) -> None:
        self._stamps = array("d")

    def __len__(self) -> int:
        return len(self._stamps) // 4

    def add(self, submitted: float, began: float, ended: float, returned: float) -> None:
        """Take in a call that came back."""
        self._stamps.extend((submitted, began, ended, returned))

    def summary(self, begin: float, end: float) -> Mapping[str, Any]:
        """Return the figures of the calls that ended and came back from `begin` to `end`, in seconds.

        A loop that was held up before `begin` then gets many results at once, which say nothing of the
        rate: they ended before. They do not count.

        `running` is the mean number of calls in threads over the last third, and `timeline` counts
        the calls that came back in each tenth of a second.
        """
        stamps = np.frombuffer(self._stamps).reshape(-1, 4)
        counted = stamps[(begin <= stamps[:, 2]) & (stamps[:, 3] < end)]
        edges = np.arange(round((end - begin) / _BUCKET) + 1) * _BUCKET + begin
        return {
            "calls": len(counted),
            "rate": len(counted) / (end - begin),
            "running": _running(stamps, end - (end - begin) * _TAIL, end),
            "timeline": np.histogram(counted[:, 3], edges)[0].tolist(),
            **_quantiles("total", counted[:, 3] - counted[:, 0]),
            **_quantiles("run", counted[:, 2] - counted[:, 1]),
        }


def _running(stamps: Times, begin: float, end: float) -> float:
    """Return how many calls ran at once on average; those that never came back are not seen."""
    inside = np.minimum(stamps[:, 2], end) - np.maximum(stamps[:, 1], begin)
    return float(np.maximum(inside, 0).sum() / (end - begin))


def _quantiles(what: str, times: Times) -> dict[str, float | None]:
    return {
        f"{what}_{name}": float(np.percentile(times, share)) if len(times) else None
        for name, share in _SHARES.items()
    }
