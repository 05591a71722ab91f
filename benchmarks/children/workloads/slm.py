"""A small language model's step: layers of attention and feed-forward in numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.children.workloads import Phases

__all__ = ["slm"]

_TOKENS, _WIDTH, _HEADS, _LAYERS = 64, 256, 8, 4

Matrix = np.ndarray[Any, np.dtype[np.float32]]


@contextmanager
def slm() -> Iterator[Phases]:
    """Run 64 tokens through four layers. Set OPENBLAS_NUM_THREADS=1 before numpy is imported."""
    random = np.random.default_rng(0)
    tokens = random.standard_normal((_TOKENS, _WIDTH), np.float32)
    layers = [_layer(random) for _ in range(_LAYERS)]

    def call() -> Matrix:
        state = tokens
        for attention, output, widen, narrow in layers:
            state = state + _attend(_normalise(state) @ attention) @ output
            state = state + np.maximum(_normalise(state) @ widen, 0) @ narrow
        return state

    yield (call,)


def _layer(random: np.random.Generator) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    def weights(rows: int, columns: int) -> Matrix:
        return random.standard_normal((rows, columns), np.float32) * np.float32(rows**-0.5)

    return (
        weights(_WIDTH, 3 * _WIDTH),
        weights(_WIDTH, _WIDTH),
        weights(_WIDTH, 4 * _WIDTH),
        weights(4 * _WIDTH, _WIDTH),
    )


def _attend(projected: Matrix) -> Matrix:
    """Return softmax(Q K') V over all heads at once."""
    query, key, value = projected.reshape(_TOKENS, 3, _HEADS, -1).transpose(1, 2, 0, 3)
    scores = query @ key.transpose(0, 2, 1) * np.float32((_WIDTH / _HEADS) ** -0.5)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = weights / weights.sum(axis=-1, keepdims=True) @ value
    joined: Matrix = mixed.transpose(1, 0, 2).reshape(_TOKENS, _WIDTH)
    return joined


def _normalise(state: Matrix) -> Matrix:
    centred: Matrix = state - state.mean(axis=-1, keepdims=True)
    scaled: Matrix = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(1e-5))
    return scaled
