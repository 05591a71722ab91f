"""The .NET thread pool: hill climbing by a wave on the thread count, and a thread per starved half second.

After `PortableThreadPool.HillClimbing.cs` and `.GateThread.cs`, with their default constants. The
reference measures at completions, this port at ticks of 100 ms.
"""

from __future__ import annotations

import math
import random

from benchmarks.simulator.drive import Seen
from hybridrt.control.window import Limits

__all__ = ["DotNet"]

_PERIOD = 4
_HISTORY = 8 * _PERIOD
_BIAS = 0.15
_SIGNAL_TO_NOISE = 3.0
_CHANGE_PER_SECOND = 4.0
_CHANGE_MAX = 20.0
_WAVE_MAX = 20
_NOISE_SMOOTHING = 0.01
_SAMPLE_ERROR = 0.15
_STARVED = 0.5


class DotNet:
    """Hill climbing and starvation.

    Args:
        seed: Of the random lengths of its samples.
    """

    interval = 0.1
    lowest = 4

    def __init__(self, seed: int = 3) -> None:
        self._random = random.Random(seed)
        self._control = float(self.lowest)
        self._throughputs: list[float] = []
        self._sizes: list[int] = []
        self._noise = 0.0
        self._calls = self._samples = 0
        self._seconds = self._gate_at = 0.0
        self._sample = 0.1

    def start(self, limits: Limits) -> int:
        """Return the smallest size."""
        return self.lowest

    def decide(self, limits: Limits, seen: Seen) -> int:
        """Return the next size."""
        window = seen.window
        if seen.now - self._gate_at >= _STARVED:
            self._gate_at = seen.now
            if window.queued and seen.head_age > _STARVED and (seen.since_start or 0.0) > _STARVED:
                self._control += 1
                return seen.size + 1
        self._calls += window.completed
        self._seconds += window.seconds
        if self._seconds < self._sample or not (window.queued or self._calls):
            return seen.size
        if self._samples and (seen.size - 1) / max(1, self._calls) >= _SAMPLE_ERROR:
            self._sample = self._seconds + 0.01
            return seen.size
        return self._climb(limits, seen.size)

    def _climb(self, limits: Limits, size: int) -> int:
        seconds = self._seconds
        self._throughputs = [*self._throughputs, self._calls / seconds][-_HISTORY:]
        self._sizes = [*self._sizes, size][-_HISTORY:]
        self._samples += 1
        self._calls, self._seconds, self._sample = 0, 0.0, self._random.uniform(0.01, 0.2)
        gain, sure = self._judge()
        move = max(-1.0, min(1.0, gain)) * max(0.0, min(1.0, sure))
        move = min(_CHANGE_MAX, math.copysign(move * move, move) * _CHANGE_PER_SECOND * seconds)
        self._control += move
        wave = max(1, min(_WAVE_MAX, int(0.5 + self._control * self._noise * 2.0 * _SIGNAL_TO_NOISE)))
        self._control = max(self.lowest, min(limits.highest - wave, self._control))
        return int(self._control + wave * ((self._samples // 2) % 2))

    def _judge(self) -> tuple[float, float]:
        """Return what a thread more gains, and how sure that is."""
        count = min(self._samples - 1, _HISTORY) // _PERIOD * _PERIOD
        if count <= _PERIOD:
            return 0.0, 0.0
        throughput = sum(self._throughputs[-count:]) / count
        threads = sum(self._sizes[-count:]) / count
        if not throughput:
            return 0.0, 0.0
        wave = _part(self._throughputs, count, _PERIOD) / throughput
        error = self._error(count, throughput)
        self._noise = (
            _NOISE_SMOOTHING * error + (1 - _NOISE_SMOOTHING) * self._noise if self._noise else error
        )
        own = _part(self._sizes, count, _PERIOD) / threads
        ratio = (wave - _BIAS * own) / own if abs(own) else 0j
        loudest = max(self._noise, error)
        return ratio.real, abs(own) / loudest / _SIGNAL_TO_NOISE if loudest else 1.0

    def _error(self, count: int, throughput: float) -> float:
        """Return the louder of the two neighbouring frequencies."""
        error = abs(_part(self._throughputs, count, count / (count / _PERIOD + 1)) / throughput)
        if count / (count / _PERIOD - 1) <= count:
            other = _part(self._throughputs, count, count / (count / _PERIOD - 1))
            error = max(error, abs(other / throughput))
        return error


def _part(samples: list[float] | list[int], count: int, period: float) -> complex:
    """Return the part of the samples with that period (Goertzel)."""
    angle = 2 * math.pi / period
    factor = 2 * math.cos(angle)
    now = before = older = 0.0
    for sample in samples[-count:]:
        now = factor * before - older + sample
        older, before = before, now
    return complex(before - older * math.cos(angle), older * math.sin(angle)) / count
