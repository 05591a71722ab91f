"""The steps that make the model's ONNX file.

In a module of their own, because building imports onnx, a third of a second in which the GIL is hardly free:
it runs in another process, and that imports this module and no more.
"""

from __future__ import annotations

from pathlib import Path

from hybridrt import offload

from . import model as models

__all__ = ["build_onnx", "find_onnx"]


@offload
def find_onnx(model: models.Model, int8: bool) -> Path | None:
    """Check the weights and look for the ONNX file in the cache."""
    return models.cached_onnx(model, int8=int8)


@offload(pure=True, where="isolate", isolation="process")
def build_onnx(model: models.Model, int8: bool) -> Path:
    """Check the weights and build the ONNX file."""
    return models.prepare_onnx(model, int8=int8)
