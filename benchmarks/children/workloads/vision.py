"""Images through MobileNetV2 in ONNX Runtime: as a pipeline, and behind 50 ms of I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.children.workloads import Phases
from benchmarks.children.workloads.mobilenet import cached

__all__ = ["inference_after_io", "vision"]

_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
_IO_SECONDS = 0.05


@contextmanager
def vision() -> Iterator[Phases]:
    """A camera frame: cut, scale and normalise it, infer, pick the five best classes."""
    infer = _model()
    frame = np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8)

    def call() -> list[int]:
        logits = infer(_prepare(frame))
        return [int(index) for index in np.argsort(logits[0])[-5:]]

    yield (call,)


@contextmanager
def inference_after_io() -> Iterator[Phases]:
    """Wait for the image, then infer."""
    infer = _model()
    image = _prepare(np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8))

    def call() -> int:
        time.sleep(_IO_SECONDS)
        return int(infer(image)[0].argmax())

    yield (call,)


def _prepare(frame: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the middle 448 x 448 pixels at half the size, normalised, channels first."""
    cut = frame[16:464, 96:544].reshape(224, 2, 224, 2, 3).mean(axis=(1, 3), dtype=np.float32)
    scaled = (cut / np.float32(255) - _MEAN) / _DEVIATION
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None])


def _model() -> Callable[[Any], Any]:
    """Return inference by one thread a call: the threads are the pool's to give."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(cached()), options, providers=["CPUExecutionProvider"])

    def infer(image: Any) -> Any:
        return session.run(None, {"input": image})[0]

    return infer
