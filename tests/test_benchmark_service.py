"""What the benchmark of the service makes of its samples."""

from __future__ import annotations

import pytest

from benchmarks.service import WAYS, candidates, figures_of


def test_the_beginning_is_told_apart_from_the_rest() -> None:
    sample = {
        "chats": [[4.0, 4.0], [9.0, 5.0], [10.0, 1.0], [18.0, 2.0]],
        "health": [[due / 10, 0.25 if due == 5 else 0.5 if due == 150 else 0.001] for due in range(200)],
    }
    found = {name: values[0] for name, values in figures_of([sample], 20.0).items()}
    assert found == {
        "chats": pytest.approx(3 / 12),
        "health_p50": pytest.approx(1.0),
        "health_p99": pytest.approx(250.0),
        "health_max": pytest.approx(500.0),
        "beginning": pytest.approx(250.0),
        "then": pytest.approx(1.0),
    }


def test_each_way_is_measured_and_one_of_them_with_one_blas_thread() -> None:
    ways = candidates(quick=True)
    assert [way.name for way in ways] == list(WAYS)
    assert [dict(way.environment) for way in ways] == [{}, {}, {}, {"OPENBLAS_NUM_THREADS": "1"}]
