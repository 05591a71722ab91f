"""The four tools of the agents benchmark, as plain functions that an isolate finds, too."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from typing import Any

__all__ = ["TOOLS", "embed", "fetch", "orders", "point_to", "search", "warm_up"]

_ORDERS = 7_000
"""About 1 MB of JSON."""
_DIMENSIONS, _TOKENS, _LAYERS = 384, 64, 4
_PASSAGES = 10_000
_where = {"port": 0}


def point_to(port: int) -> None:
    """Say where the documents are."""
    _where["port"] = port


def warm_up() -> None:
    """Build what the tools need, which is no part of a question."""
    _export()
    _session()
    _passages()


@cache
def _export() -> bytes:
    rows = [
        {
            "order": number,
            "thing": f"thing {number % 97}",
            "pieces": number % 5,
            "price": 9.5,
            "note": "-" * 60,
        }
        for number in range(_ORDERS)
    ]
    return json.dumps(rows).encode()


def orders(query: str) -> float:
    """Parse an export of 1 MB: one C call that holds the GIL, and a loop over what comes of it."""
    rows: list[dict[str, Any]] = json.loads(_export())
    return float(sum(row["pieces"] * row["price"] for row in rows))


@cache
def _session() -> Any:
    """Return a stack of dense layers, of about the work that a short sentence is for a small encoder."""
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "tokens"
    for layer in range(_LAYERS):
        for part, shape in (("up", (_DIMENSIONS, 4 * _DIMENSIONS)), ("down", (4 * _DIMENSIONS, _DIMENSIONS))):
            name = f"{part}{layer}"
            array = (random.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)
            weights.append(numpy_helper.from_array(array, f"{name}_w"))
            nodes.append(helper.make_node("MatMul", [last, f"{name}_w"], [f"{name}_x"]))
            nodes.append(helper.make_node("Relu", [f"{name}_x"], [name]))
            last = name
    nodes.append(helper.make_node("ReduceMean", [last], ["embedding"], axes=[0], keepdims=0))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "encoder",
        [value("tokens", TensorProto.FLOAT, [_TOKENS, _DIMENSIONS])],
        [value("embedding", TensorProto.FLOAT, [_DIMENSIONS])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def embed(query: str) -> int:
    """Run the encoder, which leaves the GIL to others."""
    import numpy as np

    tokens = np.full((_TOKENS, _DIMENSIONS), len(query), np.float32)
    return len(_session().run(["embedding"], {"tokens": tokens})[0])


class _Headings(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found += tag == "h2"


def fetch(query: str) -> int:
    """Wait 50 ms for a document, then parse it in Python."""
    connection = http.client.HTTPConnection("127.0.0.1", _where["port"], timeout=60)
    try:
        connection.request("GET", "/document")
        page = connection.getresponse().read().decode()
    finally:
        connection.close()
    parser = _Headings()
    parser.feed(page)
    return parser.found


@cache
def _passages() -> Any:
    import numpy as np

    return np.random.default_rng(1).standard_normal((_PASSAGES, _DIMENSIONS)).astype(np.float32)


def search(query: str) -> int:
    """Find the nearest of 10,000 passages, exactly."""
    import numpy as np

    passages = _passages()
    return int(np.argmax(passages @ passages[len(query)]))


TOOLS: tuple[Callable[[str], Any], ...] = (orders, embed, fetch, search)
