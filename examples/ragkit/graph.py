"""Build the ONNX graph of a BERT encoder with pooling from a safetensors file, without torch.

Follows the encoder of "BERT" (Devlin et al., 2018) and the mean pooling of "Sentence-BERT" (Reimers and
Gurevych, 2019). Pooling and L2 norm are inside the graph, so that one call gives finished vectors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors import SafetensorError
from safetensors.numpy import load_file

from .errors import ModelError

__all__ = ["build_graph"]

OPSET = 20  # the first with Gelu
IR_VERSION = 10
_MASKED = -1e9


def build_graph(weights: Path, config: dict[str, Any], pooling: str, path: Path) -> None:
    """Write the model's graph to `path`: `input_ids`, `attention_mask` -> `embedding` of unit length.

    Raises:
        ModelError: A tensor that the configuration promises is not in the weights.
    """
    try:
        tensors = _without_prefix(load_file(weights))
        model = _Builder(tensors, config).build(pooling)
    except (KeyError, SafetensorError) as error:
        raise ModelError(
            f"expected the tensors of a BERT model in {weights}, got {error!r}; give --model another folder"
        ) from error
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def _without_prefix(tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix("bert."): tensor.astype(np.float32) for name, tensor in tensors.items()}


class _Builder:
    """Collects nodes and constants; methods take and return the names of values."""

    def __init__(self, tensors: dict[str, NDArray[Any]], config: dict[str, Any]) -> None:
        self._tensors = tensors
        self._layers = int(config["num_hidden_layers"])
        self._heads = int(config["num_attention_heads"])
        self._hidden = int(config["hidden_size"])
        self._head_size = self._hidden // self._heads
        self._epsilon = float(config.get("layer_norm_eps", 1e-12))
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def build(self, pooling: str) -> onnx.ModelProto:
        mask = self._op("Cast", "attention_mask", to=TensorProto.FLOAT)
        bias = self._attention_bias(mask)
        tokens = self._embeddings()
        for layer in range(self._layers):
            tokens = self._layer(tokens, bias, f"encoder.layer.{layer}.")
        pooled = self._mean(tokens, mask) if pooling == "mean" else self._first(tokens)
        self._nodes.append(helper.make_node("LpNormalization", [pooled], ["embedding"], axis=1, p=2))
        return self._model()

    def _embeddings(self) -> str:
        prefix = "embeddings."
        length = self._op("Shape", "input_ids", start=1, end=2)
        positions = self._tensor(prefix + "position_embeddings.weight")
        position = self._op("Slice", positions, self._integers(0), length, self._integers(0))
        word = self._op("Gather", self._tensor(prefix + "word_embeddings.weight"), "input_ids")
        first_type = self._constant(self._tensors[prefix + "token_type_embeddings.weight"][0])
        total = self._op("Add", word, self._op("Add", position, first_type))
        return self._norm(total, prefix + "LayerNorm")

    def _attention_bias(self, mask: str) -> str:
        hidden = self._op("Sub", self._number(1.0), mask)
        return self._op("Unsqueeze", self._op("Mul", hidden, self._number(_MASKED)), self._integers(1, 2))

    def _layer(self, tokens: str, bias: str, prefix: str) -> str:
        context = self._attention(tokens, bias, prefix + "attention.self.")
        projected = self._linear(context, prefix + "attention.output.dense")
        tokens = self._norm(self._op("Add", projected, tokens), prefix + "attention.output.LayerNorm")
        wide = self._op("Gelu", self._linear(tokens, prefix + "intermediate.dense"))
        narrow = self._linear(wide, prefix + "output.dense")
        return self._norm(self._op("Add", narrow, tokens), prefix + "output.LayerNorm")

    def _attention(self, tokens: str, bias: str, prefix: str) -> str:
        query = self._split(tokens, prefix + "query", [0, 2, 1, 3])
        key = self._split(tokens, prefix + "key", [0, 2, 3, 1])
        value = self._split(tokens, prefix + "value", [0, 2, 1, 3])
        scores = self._op("Mul", self._op("MatMul", query, key), self._number(self._head_size**-0.5))
        shares = self._op("Softmax", self._op("Add", scores, bias), axis=-1)
        context = self._op("Transpose", self._op("MatMul", shares, value), perm=[0, 2, 1, 3])
        return self._op("Reshape", context, self._integers(0, 0, self._hidden))

    def _split(self, tokens: str, name: str, order: list[int]) -> str:
        shape = self._integers(0, 0, self._heads, self._head_size)
        return self._op("Transpose", self._op("Reshape", self._linear(tokens, name), shape), perm=order)

    def _mean(self, tokens: str, mask: str) -> str:
        weight = self._op("Unsqueeze", mask, self._integers(2))
        total = self._op("ReduceSum", self._op("Mul", tokens, weight), self._integers(1), keepdims=0)
        return self._op("Div", total, self._op("ReduceSum", weight, self._integers(1), keepdims=0))

    def _first(self, tokens: str) -> str:
        zero = self._constant(np.array(0, np.int64))
        return self._op("Gather", tokens, zero, axis=1)

    def _linear(self, value: str, name: str) -> str:
        weight = self._constant(self._tensors[name + ".weight"].T)
        return self._op("Add", self._op("MatMul", value, weight), self._tensor(name + ".bias"))

    def _norm(self, value: str, name: str) -> str:
        scale, bias = self._tensor(name + ".weight"), self._tensor(name + ".bias")
        return self._op("LayerNormalization", value, scale, bias, axis=-1, epsilon=self._epsilon)

    def _op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def _tensor(self, name: str) -> str:
        return self._constant(self._tensors[name])

    def _integers(self, *values: int) -> str:
        return self._constant(np.array(values, np.int64))

    def _number(self, value: float) -> str:
        return self._constant(np.array(value, np.float32))

    def _constant(self, array: NDArray[Any]) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _model(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
            for name in ("input_ids", "attention_mask")
        ]
        output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", self._hidden])
        graph = helper.make_graph(self._nodes, "sentence-encoder", inputs, [output], self._constants)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
