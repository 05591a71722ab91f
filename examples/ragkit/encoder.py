"""Texts to vectors: the tokenizer and the ONNX session, safe to use from many threads at once.

Both are configured once, here. A tokenizer that is reconfigured while another thread encodes raises
"Already borrowed"; a session with threads of its own would compete with the pool that calls it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from hybridrt import offload

from .errors import ModelError
from .model import Model

__all__ = ["BATCH", "Encoder", "Tokens", "Vectors", "batches_by_length", "by_length"]

Tokens = NDArray[np.int64]
"""The token numbers of one text."""

Vectors = NDArray[np.float32]
"""Shape (texts, dimensions), each row of unit length."""

BATCH = 8
"""Texts at once; above some hundred tokens a text, larger batches gain nothing."""

_FATAL_ONLY = 4


class Encoder:
    """An embedding model, loaded.

    Attributes:
        tokenise_one: Awaits the tokens of one text, which gets them together with those of other callers.
        embed_one: Awaits the vector of one text in the same way.
    """

    def __init__(self, model: Model, onnx_file: Path) -> None:
        self.name = model.name
        self.dimensions = int(model.config["hidden_size"])
        self._tokenizer = _load_tokenizer(model)
        self._session = _load_session(onnx_file)
        batched = offload(batch=BATCH, limit=os.cpu_count())  # both leave the GIL: a batch for each core
        self.tokenise_one, self.embed_one = batched(self.tokenise), batched(self.embed)

    def tokenise(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text, cut at the model's limit.

        `encode_batch` even for one text: it releases the GIL, `encode` holds it.
        """
        return [np.array(encoding.ids, np.int64) for encoding in self._tokenizer.encode_batch(list(texts))]

    def embed(self, batch: Sequence[Tokens]) -> list[Vectors]:
        """Return the vector of each text; their dot products are cosines. Releases the GIL.

        The texts are padded to the longest, so it pays to batch texts of like length.
        """
        longest = max(len(tokens) for tokens in batch)
        ids = np.zeros((len(batch), longest), np.int64)  # what pads is masked: any number will do
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        vectors: Vectors = self._session.run(["embedding"], {"input_ids": ids, "attention_mask": mask})[0]
        return list(vectors)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, in their order; no texts give no rows."""
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        tokens = self.tokenise(texts)
        for batch in batches_by_length(tokens):
            vectors[batch] = self.embed([tokens[i] for i in batch])
        return vectors


def by_length(texts: Sequence[Tokens]) -> list[int]:
    """Return the numbers of the texts, those of the shortest first, so that little is padded."""
    return sorted(range(len(texts)), key=lambda i: len(texts[i]))


def batches_by_length(texts: Sequence[Tokens]) -> list[list[int]]:
    """Return the same in batches."""
    order = by_length(texts)
    return [order[start : start + BATCH] for start in range(0, len(order), BATCH)]


def _load_tokenizer(model: Model) -> Tokenizer:
    # One thread a call: the pool that calls is the one that knows how many to use.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    path = model.folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"expected a tokenizer in {path}, got {error}; restore the file") from error
    tokenizer.enable_truncation(model.tokens_max)
    tokenizer.no_padding()  # `embed` pads, once it knows which texts go together
    return tokenizer


def _load_session(onnx_file: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_ONLY
    try:
        return onnxruntime.InferenceSession(str(onnx_file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's own classes derive from Exception only
        raise ModelError(
            f"expected an ONNX model in {onnx_file}, got {error}; delete the file and it is built again"
        ) from error
