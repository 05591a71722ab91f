"""Sensor fusion: a Kalman filter over inertial and satellite measurements."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.children.workloads import Phases

__all__ = ["fusion"]

_SENSOR_SECONDS = 0.02
_INERTIAL = 20
"""Measurements of acceleration that a packet of the sensor brings, before one of the position."""
_TIME = 0.001

Matrix = np.ndarray[Any, np.dtype[np.float64]]


@contextmanager
def fusion() -> Iterator[Phases]:
    """Wait for a packet of the sensor, predict with each acceleration, correct with the position.

    The state is position, velocity and the accelerometer's bias in three dimensions.
    """
    random = np.random.default_rng(0)
    accelerations, position = random.standard_normal((_INERTIAL, 3)), random.standard_normal(3)
    move, push = _motion()
    noise, observe = np.eye(9) * 1e-4, np.eye(3, 9)

    def call() -> Matrix:
        time.sleep(_SENSOR_SECONDS)
        state, covariance = np.zeros(9), np.eye(9)
        for acceleration in accelerations:
            state = move @ state + push @ acceleration
            covariance = move @ covariance @ move.T + noise
        return _correct(state, covariance, observe, position)

    yield (call,)


def _motion() -> tuple[Matrix, Matrix]:
    """Return how the state moves by itself, and how an acceleration pushes it."""
    one = np.eye(3)
    move = np.eye(9)
    move[:3, 3:6], move[3:6, 6:], move[:3, 6:] = one * _TIME, -one * _TIME, -one * _TIME**2 / 2
    return move, np.vstack((one * _TIME**2 / 2, one * _TIME, np.zeros((3, 3))))


def _correct(state: Matrix, covariance: Matrix, observe: Matrix, position: Matrix) -> Matrix:
    innovation = observe @ covariance @ observe.T + np.eye(3) * 0.1
    gain = np.linalg.solve(innovation, observe @ covariance).T
    corrected: Matrix = state + gain @ (position - observe @ state)
    return corrected
