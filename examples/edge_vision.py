"""Classify camera frames with MobileNetV2 on a small device, beside a loop that must not stutter.

    uv run --extra rag examples/edge_vision.py
    uv run --extra rag examples/edge_vision.py --frames 1000

Decoding holds the GIL and inference gives it away, so they want different treatment: neither has to say so.
onnxruntime gets one thread for each call, and the runtime runs as many calls as there are cores. The model
is built here from its published topology (Sandler et al., "MobileNetV2", table 2) with random weights: what
it costs is real, what it says means nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from typing import Any

try:
    import numpy as np
    import onnx
    import onnxruntime
    from numpy.typing import NDArray
    from onnx import TensorProto, helper, numpy_helper
except ModuleNotFoundError as error:
    message = f"expected the packages of the extra `rag`, got no {error.name}"
    sys.exit(f"error: {message}; run `uv run --extra rag examples/edge_vision.py`")

import hybridrt
from hybridrt import offload

SIDE = 224
CLASSES = 1000
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, repetitions and first stride of each row of bottlenecks."""
Pixels = NDArray[np.float32]


class Network:
    """Collects the nodes and weights of a model, input first."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights = [
            numpy_helper.from_array(np.asarray(value, np.float32), name)
            for name, value in (("zero", 0.0), ("six", 6.0))
        ]

    def add(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        """Append a node and return the name of its output."""
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def weight(self, *shape: int, spread: float) -> str:
        """Add random weights and return their name."""
        name = f"weight{len(self.weights)}"
        values = (self.random.standard_normal(shape) * spread).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def convolve(
        self, source: str, taken: int, given: int, size: int = 1, stride: int = 1, groups: int = 1
    ) -> str:
        """Append a convolution."""
        fan = taken // groups * size**2
        weight = self.weight(given, taken // groups, size, size, spread=(2 / fan) ** 0.5)
        shape = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [size // 2] * 4}
        return self.add("Conv", [source, weight], group=groups, **shape)

    def clip(self, source: str) -> str:
        """Append a ReLU6."""
        return self.add("Clip", [source, "zero", "six"])

    def bottleneck(self, source: str, taken: int, given: int, expansion: int, stride: int) -> str:
        """Append expansion, depthwise convolution and projection, around them the residual."""
        wide = taken * expansion
        top = self.clip(self.convolve(source, taken, wide)) if expansion > 1 else source
        top = self.clip(self.convolve(top, wide, wide, 3, stride, wide))
        top = self.convolve(top, wide, given)
        return self.add("Add", [source, top]) if stride == 1 and taken == given else top


def build_model() -> bytes:
    """Return MobileNetV2 as the bytes of an ONNX file."""
    network, channels = Network(), 32
    top = network.clip(network.convolve("image", 3, channels, 3, 2))
    for expansion, wide, repetitions, stride in STAGES:
        for number in range(repetitions):
            top = network.bottleneck(top, channels, wide, expansion, 1 if number else stride)
            channels = wide
    top = network.clip(network.convolve(top, channels, 1280))
    top = network.add("Flatten", [network.add("GlobalAveragePool", [top])])
    top = network.add("MatMul", [top, network.weight(1280, CLASSES, spread=0.01)])
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIDE, SIDE])
    scores = helper.make_tensor_value_info(top, TensorProto.FLOAT, [1, CLASSES])
    graph = helper.make_graph(network.nodes, "mobilenetv2", [image], [scores], network.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


class Classifier:
    """The model, loaded; each call computes in the thread that makes it."""

    @offload
    def load(self) -> None:
        """Build and load the model, off the loop like all the rest."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(build_model(), options, ["CPUExecutionProvider"])

    @offload
    def classify(self, image: Pixels) -> int:
        """Return the number of the likeliest class."""
        (scores,) = self.session.run(None, {"image": image})
        return int(np.argmax(scores))


@offload
def decode(frame: bytes) -> Pixels:
    """Turn the bytes of a camera into what the model takes: planes of colours from -1 to 1."""
    pixels = np.frombuffer(frame, np.uint8).reshape(SIDE, SIDE, 3).astype(np.float32)
    return np.ascontiguousarray((pixels / 127.5 - 1.0).transpose(2, 0, 1)[None])


async def control(period: float, stop: asyncio.Event) -> list[float]:
    """Stand for a motor's control loop: wake up in time and note by how much it was late."""
    late = []
    while not stop.is_set():
        due = time.perf_counter() + period
        await asyncio.sleep(period)
        late.append(time.perf_counter() - due)
    return late


async def main(frames: int) -> None:
    """Classify frames while the control loop runs, and say how both got on."""
    classifier, stop = Classifier(), asyncio.Event()
    await classifier.load()
    controlling = asyncio.create_task(control(0.005, stop))
    camera = np.random.default_rng(1)

    async def handle(frame: bytes) -> int:
        return await classifier.classify(await decode(frame))

    begun = time.perf_counter()
    shots = (camera.integers(0, 256, SIDE * SIDE * 3, np.uint8).tobytes() for _ in range(frames))
    classes = await hybridrt.Runtime.current().map(handle, shots, limit=8)
    took = time.perf_counter() - begun
    stop.set()
    late = sorted(await controlling)
    print(f"{len(classes)} frames classified, {len(classes) / took:.1f} a second")
    print(f"the control loop woke {len(late)} times, p99 {1000 * late[int(0.99 * len(late))]:.2f} ms late")
    for function in hybridrt.Runtime.current().statistics().functions:
        print(f"{function.name}: {function.calls} calls, GIL class {function.gil}")


def parse(arguments: list[str] | None = None) -> Any:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="Classify frames beside a control loop.")
    parser.add_argument("--frames", type=int, default=200, help="frames to classify (default 200)")
    options = parser.parse_args(arguments)
    if options.frames < 1:
        parser.error(f"--frames must be at least 1, got {options.frames}")
    return options


if __name__ == "__main__":
    threading.stack_size(512 * 1024)  # a small device has little memory
    hybridrt.run(main(parse().frames))
