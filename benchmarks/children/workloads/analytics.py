"""Telemetry of some devices in pandas: rolling means and aggregates by device and minute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd

from benchmarks.children.workloads import Phases

__all__ = ["analytics"]

_ROWS, _DEVICES, _WINDOW = 20_000, 16, 50


@contextmanager
def analytics() -> Iterator[Phases]:
    """Smooth the readings of each device, aggregate them by minute, count those that stand out."""
    readings = _readings()

    def call() -> int:
        smooth = readings.groupby("device")["value"].rolling(_WINDOW, min_periods=1).mean()
        minutes = readings.groupby(["device", "minute"])["value"].agg(["mean", "std", "max"])
        outlying = (readings["value"].to_numpy() - smooth.to_numpy()) > 3 * minutes["std"].mean()
        return int(outlying.sum())

    yield (call,)


def _readings() -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "device": np.sort(random.integers(0, _DEVICES, _ROWS)),
            "minute": np.tile(np.arange(_ROWS // 100), 100),
            "value": random.standard_normal(_ROWS).cumsum(),
        }
    )
