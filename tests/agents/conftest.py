"""No endpoint, key or proxy from outside; and no tests where the extra `agents` is not installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if not all(map(find_spec, ("openai", "pydantic"))):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what would lead the client elsewhere."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
