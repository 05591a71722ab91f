"""Features of speech: three seconds of sound through windows, FFT, mel bands and their logarithm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.children.workloads import Phases

__all__ = ["voice"]

_RATE = 16_000
_WINDOW, _STEP, _FFT = 400, 160, 512
"""25 ms every 10 ms, as speech recognisers have it."""
_BANDS, _COEFFICIENTS = 40, 13
_SECONDS = 3

Matrix = np.ndarray[Any, np.dtype[np.float64]]


@contextmanager
def voice() -> Iterator[Phases]:
    """MFCC of three seconds of sound, with their mean and deviation."""
    sound = np.random.default_rng(0).standard_normal(_RATE * _SECONDS)
    taper, bands, cosines = np.hanning(_WINDOW), _mel_bands(), _cosines()

    def call() -> Matrix:
        emphasised = np.append(sound[0], sound[1:] - 0.97 * sound[:-1])
        frames = sliding_window_view(emphasised, _WINDOW)[::_STEP] * taper
        power = np.abs(np.fft.rfft(frames, _FFT)) ** 2 / _FFT
        features = np.log(power @ bands.T + 1e-10) @ cosines
        normalised: Matrix = (features - features.mean(axis=0)) / features.std(axis=0)
        return normalised

    yield (call,)


def _mel_bands() -> Matrix:
    """Return triangles that are equally wide on the mel scale, one row per band."""
    highest = 2595 * np.log10(1 + _RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, highest, _BANDS + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(_FFT, 1 / _RATE)
    low, middle, high = (edges[i : i + _BANDS, None] for i in range(3))
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    return np.maximum(0, np.minimum(rising, falling))


def _cosines() -> Matrix:
    """Return the DCT-II as a matrix."""
    angles = np.outer(np.arange(_BANDS) + 0.5, np.arange(_COEFFICIENTS))
    return np.cos(np.pi / _BANDS * angles)
