"""The GIL class of real functions, learned on real threads."""

from __future__ import annotations

import hashlib
import json
import socket
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, GilClass
from hybridrt.measure.gil import blocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(blocks() is None, reason="threads have no counter of their waits here"),
]

PATIENCE = 40.0
"""Seconds until a class must be known; it takes some ten calls on a quiet machine."""


def learned(call: Callable[[], object], wanted: GilClass) -> GilClass:
    """Call again and again until the class is the one wanted, and return what it is."""
    with AdaptiveThreadPoolExecutor() as executor:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            executor.submit(call).result(PATIENCE)
            found = executor.statistics().functions[0].gil
            if found is wanted:
                break
        return found


TEXT = json.dumps(list(range(300_000)))
"""Numbers, which the garbage collector does not look at: its callbacks, such as those of test tools, are
Python code and give the GIL away."""
BLOB = bytes(range(256)) * 8192
BIG = 8 * BLOB
"""Made here: a copy of that size holds the GIL for as long as the hash leaves it."""


def compute() -> None:
    total = 0
    for number in range(200_000):
        total += number * number


def receive() -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.02)
        try:
            return ours.recv(1)
        except TimeoutError:
            return b""


@pytest.mark.parametrize(
    ("call", "gil"),
    [
        pytest.param(lambda: json.loads(TEXT), GilClass.HOLDS, id="json.loads"),
        pytest.param(lambda: zlib.compress(BLOB, 9), GilClass.RELEASES, id="zlib"),
        pytest.param(lambda: hashlib.sha256(BIG).digest(), GilClass.RELEASES, id="sha256"),
        pytest.param(compute, GilClass.COOPERATES, id="bytecode"),
        pytest.param(lambda: time.sleep(0.02), GilClass.WAITS, id="sleep"),
        pytest.param(receive, GilClass.WAITS, id="socket"),
    ],
)
def test_the_class_of_functions_of_the_standard_library(call: Callable[[], object], gil: GilClass) -> None:
    assert learned(call, gil) is gil


def test_pydantic_holds_the_gil() -> None:
    pydantic = pytest.importorskip("pydantic")
    adapter = pydantic.TypeAdapter(list[int])
    assert learned(lambda: adapter.validate_json(TEXT), GilClass.HOLDS) is GilClass.HOLDS


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: number for number, word in enumerate(["[UNK]", *(f"word{n}" for n in range(500))])}
    built = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    built.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return built


PAGE = " ".join(f"word{number % 700}" for number in range(20_000))


def test_encoding_one_text_holds_the_gil(tokenizer: Any) -> None:
    assert learned(lambda: tokenizer.encode(PAGE), GilClass.HOLDS) is GilClass.HOLDS


def test_encoding_a_batch_releases_it(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    call = lambda: tokenizer.encode_batch_fast([PAGE, PAGE])  # noqa: E731
    assert learned(call, GilClass.RELEASES) is GilClass.RELEASES


def test_onnxruntime_releases_it() -> None:
    onnxruntime, helper = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx.helper")
    numpy, onnx = pytest.importorskip("numpy"), pytest.importorskip("onnx")
    size = onnx.TensorProto.FLOAT
    x, y = (helper.make_tensor_value_info(name, size, [400, 400]) for name in "xy")
    nodes = [helper.make_node("MatMul", ["x", "x"], ["a0"])]
    nodes += [helper.make_node("MatMul", [f"a{n}", "x"], [f"a{n + 1}"]) for n in range(5)]
    nodes += [helper.make_node("Identity", ["a5"], ["y"])]
    graph = helper.make_graph(nodes, "chain", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    data = {"x": numpy.eye(400, dtype=numpy.float32)}
    assert learned(lambda: session.run(None, data), GilClass.RELEASES) is GilClass.RELEASES


def test_a_function_that_changes_its_class_is_learned_anew() -> None:
    work: list[Callable[[], object]] = [compute]
    with AdaptiveThreadPoolExecutor() as executor:
        for call, wanted in (
            (compute, GilClass.COOPERATES),
            (lambda: zlib.compress(BLOB, 9), GilClass.RELEASES),
            (lambda: time.sleep(0.02), GilClass.WAITS),
            (compute, GilClass.COOPERATES),
        ):
            work[0] = call
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                executor.submit(lambda: work[0]()).result(PATIENCE)
                found = executor.statistics().functions[0].gil
                if found is wanted:
                    break
            assert found is wanted
