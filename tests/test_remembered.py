"""What was learned about functions outlives the process, in a file that is checked when it is read."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest

from hybridrt import NotPortableError, Runtime, install
from hybridrt import remembered as module
from hybridrt.explanation import _reason_in_words
from hybridrt.loop.router import Router, keep_all
from hybridrt.observe.function_name import identify
from hybridrt.observe.functions import WINDOW, Profile
from hybridrt.observe.profiles import Profiles, _begin
from hybridrt.placements import PlacementReason
from hybridrt.remembered import BYTES_MAX, FUNCTIONS_MAX, Remembered, fingerprint, load
from hybridrt.values import GilClass, Kind
from tests.placement.test_moving import HOLDS, PORT, SIZE, carry

ROOT = Path(__file__).parent.parent


def code(source: str) -> Any:
    """Return the code of the one function of a source."""
    names: dict[str, Any] = {}
    exec(source, names)
    return names["fn"].__code__


def reloaded(kept: Remembered) -> Remembered:
    """Return what the next run reads."""
    kept.save()
    return load(str(kept.path))


@pytest.fixture
def kept(tmp_path: Path) -> Remembered:
    return Remembered(tmp_path / "profile.json")


# ---------------------------------------------------------------------- the file


def test_what_one_run_writes_the_next_one_reads(kept: Remembered) -> None:
    kept.add("m:fn", None, "profile", {"kind": "short"})
    kept.add("m:fn", None, "placement", {"sizes": []})
    found = reloaded(kept)
    assert found.of("m:fn", None) == {"profile": {"kind": "short"}, "placement": {"sizes": []}}
    assert found.of("m:other", None) == {}


def test_a_file_that_cannot_be_put_in_its_place_leaves_nothing_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "folder").mkdir()
    Remembered(tmp_path / "folder").save()
    assert "HYBRIDRT_PROFILE could not be written" in caplog.text
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_nothing_is_kept_without_a_path() -> None:
    kept = load(None)
    kept.save()
    assert (kept.path, load("").is_empty) == (None, True)


def test_the_first_run_finds_no_file_and_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load(str(tmp_path / "none")).is_empty
    assert not caplog.records


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        20_000 * "[",
        '{"functions": []}',
        '{"functions": {"m:fn": 1}}',
        '{"functions": {}, "format": 0}',
    ],
)
def test_a_file_that_does_not_fit_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text, encoding="utf-8")
    found = load(str(path))
    assert (found.is_empty, found.path) == (True, path)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "is ignored" in caplog.text


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "profile.json"
    with path.open("wb") as file:
        file.truncate(BYTES_MAX + 1)
    assert load(str(path)).is_empty
    assert "at most" in caplog.text


def test_a_file_of_another_python_is_ignored(kept: Remembered, caplog: pytest.LogCaptureFixture) -> None:
    kept.add("m:fn", None, "profile", {})
    kept.save()
    assert kept.path is not None
    written = json.loads(kept.path.read_text(encoding="utf-8"))
    kept.path.write_text(json.dumps({**written, "python": "cpython-27"}), encoding="utf-8")
    assert load(str(kept.path)).is_empty
    assert "cpython-27" in caplog.text


@pytest.mark.parametrize(("wrote", "reads"), [(1, 2), (2, 1), (2, 0.5)])
def test_a_file_of_a_process_that_could_use_other_cores_is_ignored(
    kept: Remembered,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    wrote: float,
    reads: float,
) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: wrote)
    kept.add("m:fn", None, "profile", {})
    kept.save()
    assert not load(str(kept.path)).is_empty
    monkeypatch.setattr(module, "usable_cores", lambda: reads)
    assert load(str(kept.path)).is_empty
    assert f"'cpus': {wrote}" in caplog.text


def test_the_file_stays_where_it_was_when_the_program_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    found = load("profile.json")
    monkeypatch.chdir(tmp_path / "elsewhere")
    found.save()
    assert (tmp_path / "profile.json").is_file()


def test_a_function_whose_code_has_changed_is_learned_anew(
    kept: Remembered, caplog: pytest.LogCaptureFixture
) -> None:
    kept.add("m:fn", code("def fn(x): return x + 1"), "profile", {"kind": "short"})
    found = reloaded(kept)
    assert found.of("m:fn", code("def fn(x): return x + 2")) == {}
    assert "m:fn has other code" in caplog.text


def test_functions_of_one_name_are_told_apart_by_their_code(
    kept: Remembered, caplog: pytest.LogCaptureFixture
) -> None:
    codes = [code(f"def fn(x): return x + {number}") for number in range(3)]
    for number in range(2):
        kept.add("m:fn", codes[number], "profile", {"number": number})
    found = reloaded(kept)
    assert [found.of("m:fn", each).get("profile") for each in codes] == [{"number": 0}, {"number": 1}, None]
    assert not caplog.records


def test_a_function_whose_code_has_changed_is_told_once_and_takes_nothing_from_others_of_its_name(
    kept: Remembered, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = code("def fn(x): return x + 1"), code("def fn(x): return x + 2")
    kept.add("m:fn", old, "profile", {"kind": "short"})
    found = reloaded(kept)
    assert [found.of("m:fn", new), found.of("m:fn", new)] == [{}, {}]
    assert len(caplog.records) == 1
    assert found.of("m:fn", old) == {"profile": {"kind": "short"}}


def test_a_function_may_be_asked_for_while_the_file_is_written(
    kept: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("m:fn", "m:other"):
        kept.add(name, None, "profile", {})
    found = reloaded(kept)

    def ask_meanwhile(document: Any, **_: Any) -> str:
        return str([found.of("m:fn", code("def fn(): pass")) for _ in document["functions"]])

    monkeypatch.setattr(module.json, "dumps", ask_meanwhile)
    found.save()
    assert kept.path is not None
    assert kept.path.read_text(encoding="utf-8") == "[{}, {}]"


def test_only_so_many_functions_are_kept_the_ones_met_last(kept: Remembered) -> None:
    for number in range(FUNCTIONS_MAX + 10):
        kept.add(f"m:fn{number}", None, "profile", {"number": number})
    found = reloaded(kept)
    assert found.of("m:fn9", None) == {}
    assert found.of("m:fn10", None)["profile"] == {"number": 10}


def test_more_than_fits_is_not_written(
    kept: Remembered, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "BYTES_MAX", 100)
    kept.add("m:fn", None, "profile", {"text": "x" * 100})
    kept.save()
    assert kept.path is not None
    assert not kept.path.exists()
    assert "not kept" in caplog.text


def test_what_was_met_longest_ago_makes_room_for_what_does_not_fit(
    kept: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES_MAX", 1_000)
    for number in range(16):
        kept.add(f"m:fn{number}", None, "profile", {"text": "x" * 100})
    kept.save()
    again = reloaded(kept)
    assert again.of("m:fn15", None) == {"profile": {"text": "x" * 100}}
    assert again.of("m:fn0", None) == {}


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Remembered(tmp_path / "no" / "such" / "folder").save()
    assert "could not be written" in caplog.text


async def test_a_close_for_which_no_thread_can_be_started_writes_nothing_and_is_a_warning(
    kept: Remembered, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Unstartable(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr("hybridrt.runtime.remembered", kept)
    monkeypatch.setattr("hybridrt.drain.threading", SimpleNamespace(Thread=Unstartable))
    async with Runtime():
        pass
    assert "could not be written: can't start new thread" in caplog.text


def test_another_process_of_the_same_number_may_write_meanwhile(
    kept: Remembered, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in two containers that share a folder."""
    replace, others = Path.replace, [Remembered(kept.path)]

    def replace_after_others(self: Path, target: Path) -> Path:
        while others:
            others.pop().save()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replace_after_others)
    kept.add("m:fn", None, "profile", {"kind": "short"})
    assert reloaded(kept).of("m:fn", None) == {"profile": {"kind": "short"}}
    assert caplog.text == ""


def test_what_is_no_file_is_neither_read_nor_replaced(caplog: pytest.LogCaptureFixture) -> None:
    assert load(os.devnull).path is None
    assert f"{os.devnull} is no file: nothing is kept" in caplog.text


def test_a_function_may_be_decorated_in_another_thread_while_what_is_known_is_noted(
    kept: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crowded(WeakSet[Router]):
        def __iter__(self) -> Iterator[Router]:
            for router in super().__iter__():
                later.append(Router(parse, forced=None, on_loop=True))
                yield router

    later: list[Router] = []
    routers = Crowded()
    monkeypatch.setattr("hybridrt.loop.router._routers", routers)
    noted: list[Router] = []
    monkeypatch.setattr(Router, "keep", lambda router, _: noted.append(router))
    first = Router(parse, forced=None, on_loop=True)
    keep_all(kept)
    assert noted == [first]


def test_a_runtime_that_is_never_closed_does_not_keep_others_from_writing(
    kept: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leave_open() -> None:
        install()

    async def main() -> None:
        async with Runtime():
            await asyncio.to_thread(asyncio.run, leave_open())

    monkeypatch.setattr("hybridrt.runtime.remembered", kept)
    asyncio.run(main())
    assert kept.path is not None
    assert kept.path.exists()


async def test_what_a_runtime_has_learned_is_noted_before_it_is_asked_whether_another_will_write_it(
    kept: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other may close in between, in another thread."""
    known: list[bool] = []

    def is_last() -> bool:
        known.append(not kept.is_empty)
        return False

    monkeypatch.setattr("hybridrt.runtime.remembered", kept)
    monkeypatch.setattr("hybridrt.runtime._is_last", is_last)
    async with Runtime() as runtime:
        await runtime.map(parse, [str(number) for number in range(WINDOW)])
    assert known == [True]


def test_writing_leaves_no_other_file_behind(kept: Remembered) -> None:
    kept.save()
    kept.save()
    assert kept.path is not None
    assert os.listdir(kept.path.parent) == ["profile.json"]


def test_where_a_function_stands_in_its_file_is_no_change() -> None:
    source = "def fn(x):\n    def inner(y): return y in {'a', 'b', 'c'}\n    return inner(x)"
    assert fingerprint(code(source)) == fingerprint(code("\n\n" + source))
    assert fingerprint(code(source)) != fingerprint(code(source.replace("'c'", "'d'")))


def test_code_that_a_class_inherits_has_its_fingerprint() -> None:
    inherited = code("def fn(self): return self.forward()")
    assert fingerprint((str, inherited)) == fingerprint((int, inherited)) == fingerprint(inherited)
    assert fingerprint((str, "upper", None)) == ""


def test_a_fingerprint_is_the_same_in_each_process() -> None:
    program = (
        "from hybridrt.remembered import fingerprint\n"
        "def fn(x): return x in {'a', 'b', 'c', 'd', 'e'}, lambda: (1, 'x', b'y', None, 2.5)\n"
        "print(fingerprint(fn.__code__))"
    )
    prints = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(prints) == 1


# ---------------------------------------------------------------------- what is in it


def parse(text: str) -> str:
    return text


def test_a_profile_begins_with_what_was_known(kept: Remembered) -> None:
    profiles = Profiles()
    profile = profiles.of(parse)
    for _ in range(64):
        profile.record(10_000_000, 10_000_000, 0)
        profile.gil.saw_taken(5_000_000, 100_000)
    profiles.keep(kept)
    key, name, _ = identify(parse)
    again = _begin(Profile(key, name), reloaded(kept))
    assert (again.kind, again.cpu_mean_ns) == (profile.kind, profile.cpu_mean_ns)
    assert (again.kind, again.gil.name(waits=False)) == (Kind.SHORT, GilClass.HOLDS)
    again.record(30_000_000, 1_000, 0)
    assert again.kind is Kind.SHORT


def test_a_function_of_few_calls_is_not_kept(kept: Remembered) -> None:
    profiles = Profiles()
    profiles.of(parse).record(1_000_000, 1_000_000, 0)
    profiles.keep(kept)
    assert kept.is_empty


@pytest.mark.parametrize(
    "figures",
    [{"kind": "unheard of", "gil": []}, {"kind": "short", "gil": [], "cpu_ns": float("inf"), "wait_ns": 0}],
)
def test_a_profile_that_makes_no_sense_is_ignored(
    kept: Remembered, caplog: pytest.LogCaptureFixture, figures: dict[str, Any]
) -> None:
    key, name, _ = identify(parse)
    kept.add(name, key, "profile", figures)
    assert _begin(Profile(key, name), reloaded(kept)).kind is Kind.UNKNOWN
    assert "is ignored" in caplog.text


def learned() -> Router:
    """Return the places of a function that was moved to isolates."""
    router = Router(parse, forced=None, on_loop=True)
    size_class = router.size_class(SIZE)
    for _ in range(3):
        size_class.worked(20_000_000, 20_000_000)
        router._judge(size_class, SIZE, PORT, HOLDS)
    carry(router, size_class, 20, call_ns=20_000_000, carry_ns=200_000)
    assert size_class.choice.reason is PlacementReason.HOLDS_GIL
    return router


def test_a_function_runs_where_it_did_from_the_first_call_on(kept: Remembered) -> None:
    before = learned()
    before.keep(kept)
    after = Router(parse, forced=None, on_loop=True)
    after.restore(reloaded(kept))
    size_class = after.size_class(SIZE)
    assert (after.is_decided(size_class), after.choose(size_class)) == (True, "isolate")
    assert after.statistics().sizes[0].isolate == before.statistics().sizes[0].isolate


def test_a_function_that_could_not_be_carried_before_says_when_that_was(kept: Remembered) -> None:
    before = learned()
    before.stay(NotPortableError("it is a lambda"))
    before.keep(kept)
    after = Router(parse, forced=None, on_loop=True)
    after.restore(reloaded(kept))
    told = after.statistics()
    words = _reason_in_words(told.sizes[0], told)
    assert words == "It cannot be carried elsewhere: an earlier run has found so"


def test_with_other_options_it_is_learned_anew(kept: Remembered) -> None:
    learned().keep(kept)
    after = Router(parse, forced=None, on_loop=False)
    after.restore(reloaded(kept))
    assert not after.is_decided(after.size_class(SIZE))


@pytest.mark.parametrize("sizes", [[{}], [{"key": "x"}], [{"key": float("inf")}], 5])
def test_places_that_make_no_sense_are_ignored(
    kept: Remembered, caplog: pytest.LogCaptureFixture, sizes: Any
) -> None:
    key, name, _ = identify(parse)
    kept.add(name, key, "placement", {"largest": 1, "sizes": sizes})
    after = Router(parse, forced=None, on_loop=True)
    after.restore(reloaded(kept))
    assert not after.is_decided(after.size_class(SIZE))
    assert "is ignored" in caplog.text


PROGRAM = """
import hybridrt, functions
from hybridrt.placements import PlacementReason

def told():
    size = hybridrt.explain(functions.count).sizes
    return [(one.size_max, one.where, str(one.reason)) for one in size]

print(told())

async def main():
    for _ in range(500):
        await functions.count("some words")
        if told()[0][2] not in ("learning", "trial"):
            break

hybridrt.run(main())
print(told())
"""


def test_a_program_begins_where_its_last_run_has_ended(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(
        "import hybridrt\n@hybridrt.offload(pure=True)\ndef count(text): return len(text.split())\n"
    )
    (tmp_path / "main.py").write_text(PROGRAM)
    environment = {
        **os.environ,
        "HYBRIDRT_PROFILE": str(tmp_path / "profile.json"),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
    }
    runs = [
        subprocess.run(
            [sys.executable, "-W", "error", str(tmp_path / "main.py")],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        for _ in range(2)
    ]
    first, second = (run.stdout.splitlines() for run in runs)
    assert first[0] == "[]"
    assert second[0] == first[1] != "[]"
    assert [run.stderr for run in runs] == ["", ""]
