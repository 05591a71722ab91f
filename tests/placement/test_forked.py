"""A forked child places calls, although nobody there will release the locks it inherited."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hybridrt

ROOT = str(Path(hybridrt.__file__).resolve().parents[1])
SCRIPT = """
import faulthandler, os, warnings
from hybridrt import offload

warnings.simplefilter("ignore")

@offload(pure=True)
def double(number):
    return 2 * number

with double._router._lock:
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(20, exit=True)
        assert double._router.statistics().sizes == ()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_a_child_forked_while_a_call_is_booked_can_book_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
