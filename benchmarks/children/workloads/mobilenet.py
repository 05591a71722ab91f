"""MobileNetV2 as an ONNX file, built from its published topology with seeded weights.

Nothing is downloaded. Batch normalisation is folded into the convolutions, as in any exported model.
The weights are random: what inference costs is real, what it says means nothing.

Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", table 2.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["build", "cached"]

_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, repetitions and first stride of each row of bottlenecks."""

_CLASSES = 1000
_FEATURES = 1280
_FILE = "mobilenetv2-seed0-opset17.onnx"


def cached() -> Path:
    """Return the model's file in the user's cache; builds it the first time."""
    path = _cache() / _FILE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _save(build(), path)
    return path


def _cache() -> Path:
    if sys.platform == "win32":
        home = Path(os.environ.get("LOCALAPPDATA", Path.home()))
    elif sys.platform == "darwin":
        home = Path.home() / "Library" / "Caches"
    else:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "hybridrt-benchmarks"


def _save(model: onnx.ModelProto, path: Path) -> None:
    """Write beside and rename: two processes that build at once both leave a whole file."""
    descriptor, beside = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(model.SerializeToString())
    os.replace(beside, path)


def build(seed: int = 0) -> onnx.ModelProto:
    """Return the checked model: 224 x 224 pixels in, 1000 logits out, any batch."""
    layers = _Layers(seed)
    top, channels = layers.convolve("input", 3, 32, kernel=3, stride=2), 32
    for expansion, wide, repetitions, stride in _STAGES:
        for number in range(repetitions):
            top = layers.bottleneck(top, channels, wide, expansion, 1 if number else stride)
            channels = wide
    layers.classify(layers.convolve(top, channels, _FEATURES))
    model = helper.make_model(layers.graph(), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


class _Layers:
    """Collects the nodes and weights of the graph, input first."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._six = (self._weight("zero", np.array(0.0)), self._weight("six", np.array(6.0)))

    def convolve(
        self,
        source: str,
        taken: int,
        given: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        clip: bool = True,
    ) -> str:
        """Append a convolution, and the ReLU6 behind it unless the bottleneck is linear here."""
        shape = (given, taken // groups, kernel, kernel)
        spread = np.sqrt(2 / (taken // groups * kernel**2))
        name = f"convolution{len(self._nodes)}"
        inputs = [source, self._random_weight(f"{name}.weight", shape, spread), self._zeros(name, given)]
        node = helper.make_node(
            "Conv",
            inputs,
            [name],
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[kernel // 2] * 4,
            group=groups,
        )
        self._nodes.append(node)
        return self._append("Clip", [name, *self._six], f"{name}.clipped") if clip else name

    def bottleneck(self, source: str, taken: int, given: int, expansion: int, stride: int) -> str:
        """Append expansion, depthwise convolution and projection, around them the residual."""
        hidden = taken * expansion
        top = self.convolve(source, taken, hidden) if expansion > 1 else source
        top = self.convolve(top, hidden, hidden, kernel=3, stride=stride, groups=hidden)
        top = self.convolve(top, hidden, given, clip=False)
        residual = stride == 1 and taken == given
        return self._append("Add", [source, top], f"{top}.added") if residual else top

    def classify(self, source: str) -> None:
        """Append pooling and the linear layer."""
        pooled = self._append("GlobalAveragePool", [source], "pooled")
        features = self._append("Flatten", [pooled], "features")
        weight = self._random_weight("classifier.weight", (_FEATURES, _CLASSES), 0.01)
        self._append("Gemm", [features, weight, self._zeros("classifier", _CLASSES)], "logits")

    def graph(self) -> onnx.GraphProto:
        """Return the graph from `input` to `logits`."""
        images = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, 224, 224])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", _CLASSES])
        return helper.make_graph(self._nodes, "mobilenetv2", [images], [logits], self._weights)

    def _append(self, operator: str, inputs: list[str], name: str) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [name]))
        return name

    def _random_weight(self, name: str, shape: tuple[int, ...], spread: float) -> str:
        return self._weight(name, self._random.standard_normal(shape) * spread)

    def _zeros(self, name: str, size: int) -> str:
        return self._weight(f"{name}.bias", np.zeros(size))

    def _weight(self, name: str, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
        self._weights.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name
