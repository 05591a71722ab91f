"""What the README and docs/figures.md say was measured is what the reports hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import quoting
from benchmarks.__main__ import main
from benchmarks.harness import RESULTS
from benchmarks.loads import figures
from benchmarks.quoting import BLOCKS, DOCUMENTS, MARKED, filled, stale
from benchmarks.quoting.reports import Reports, between, machine, paragraph

SETTINGS = (
    "Python 3.11",
    "Python 3.14",
    "CPython 3.14",
    "every 5 ms",  # the interpreter's switch interval
    "250 MB",  # the wheels and the weights of the example
    "2 to 10 ms",  # what the loop gathers for
    "0.94 for its own",  # the paper's own figure
)
"""Numbers that nobody measured here: versions, sizes, limits. They may stand where they like."""
CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)
HINT = "a measured figure belongs into a block of benchmarks/quoting; a setting is named in SETTINGS above"


def unquoted(text: str) -> list[str]:
    """Return the numbers in a document that no block made, but for settings and what is in code."""
    rest = " ".join(CODE.sub(" ", MARKED.sub(" ", text)).split())
    for setting in SETTINGS:
        rest = rest.replace(setting, " ")
    return re.findall(r"(?:\S+ )?\d\S*(?: \S+)?", rest)


def test_the_documents_hold_what_the_reports_say() -> None:
    assert not [path.name for path, _ in stale()], "run `python -m benchmarks docs`"


@pytest.mark.parametrize("document", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
def test_a_document_gives_no_figure_that_no_report_has(document: Path) -> None:
    assert not unquoted(document.read_text()), HINT


def test_a_figure_without_a_report_is_found() -> None:
    text = "Python 3.11\n<!-- figures: a -->\nso 17 ms\n<!-- end of figures -->\n`18`, but it is 1.9 times"
    assert unquoted(text) == ["is 1.9 times"]


def test_no_report_names_a_folder_of_the_machine_that_measured() -> None:
    texts = {path: path.read_text() for path in RESULTS.rglob("*") if path.is_file()}
    assert not [path.name for path, text in texts.items() if re.search(r"/(root|home|tmp|Users)/", text)]


def test_every_block_stands_in_a_document() -> None:
    asked = [name for path in DOCUMENTS for _, name, _, _ in MARKED.findall(path.read_text())]
    assert sorted(asked) == sorted(BLOCKS)


def test_a_report_that_changes_changes_the_document(tmp_path: Path) -> None:
    for report in RESULTS.glob("*.json"):
        (tmp_path / report.name).write_text(report.read_text())
    cost = tmp_path / "cost-py3.13.json"
    for loads in RESULTS.glob("loads-py*/*.json"):
        (tmp_path / loads.parent.name).mkdir(exist_ok=True)
        (tmp_path / loads.parent.name / loads.name).write_text(loads.read_text())
    assert not list(stale(tmp_path))
    cost.write_text(re.sub(r'("idle on asyncio": \{\s*"median": )[0-9.]+', r"\g<1>9.87", cost.read_text()))
    ((path, made),) = stale(tmp_path)
    assert path.name == "figures.md"
    assert "to 9.87 %" in " ".join(made.split())


def test_a_choice_that_keeps_the_loop_does_not_count_as_near(tmp_path: Path) -> None:
    for name in ("inline", "lost_workers", "placement"):
        report = json.loads((RESULTS / f"{name}-py3.13.json").read_text())
        if name == "placement":
            us = {"auto": 500.0, "inline": 500.0, "thread": 550.0, "isolate": 600.0}
            report["rows"] = [{"name": "", "kind": "long", "us": us, "chosen": "inline", "regret": 0.91}]
        (tmp_path / f"{name}-py3.13.json").write_text(json.dumps(report))
    text = BLOCKS["what the choice of a place does"](Reports(tmp_path))
    assert "for 0 of [1 functions]" in " ".join(text.split())


def test_what_is_said_of_ours_on_a_load_is_all_of_a_runtime() -> None:
    reports = Reports(RESULTS)
    vision = reports.loads("loads-py3.13")["vision"]
    shares = (figures.share_of_best(vision, "runtime", what) for what in ("rate", "total_p99"))
    rate, p99 = (share.median for share in shares if share is not None)
    table = BLOCKS["how close to the best fixed size"](reports)
    (row,) = (line for line in table.splitlines() if line.startswith("| camera frame"))
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[3:5] == [f"**{rate:.2f}**", f"{p99:.2f}"]
    assert cells[6] == f"{1000 * figures.loop_delays(vision)['runtime']:.0f}"


def test_a_block_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no block of figures 'nobody'"):
        filled("<!-- figures: nobody -->\n<!-- end of figures -->", Reports(RESULTS))


def test_the_command_writes_what_is_out_of_date_and_checks_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "README.md"
    before = "<!-- figures: the price -->\n<!-- end of figures -->\n"
    document.write_text(before)
    monkeypatch.setattr(quoting, "DOCUMENTS", (document,))
    assert main(["docs", "--check"]) == 1
    assert document.read_text() == before
    assert "README.md: out of date" in capsys.readouterr().err
    assert main(["docs"]) == 0
    assert "It has a price." in document.read_text()
    assert main(["docs", "--check"]) == 0


def test_figures_are_written_as_a_range_or_as_one() -> None:
    assert between([1.004, 0.996]) == "1.00"
    assert between([3.0, 1.0, 2.0], 1) == "1.0 to 3.0"
    facts = {"usable_cpus": 2, "python": "CPython 3.11.7"}
    assert machine({"facts": facts, "repetitions": 5}).startswith("medians of 5 fresh processes")
    assert max(map(len, paragraph("word " * 100).splitlines())) <= 120
