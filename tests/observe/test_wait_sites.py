"""Call sites at which calls wait: what gives them credit, and what costs it."""

from __future__ import annotations

import threading
import time

import pytest

from hybridrt.observe.functions import PHASE_NS
from hybridrt.observe.wait_sites import FIRST_CREDIT_NS, SITES_MAX, WaitSite, WaitSites

MS = 1_000_000


def function() -> None: ...


@pytest.fixture
def site() -> WaitSite:
    return WaitSite(function.__code__, 2)


def test_a_site_that_waits_stays(site: WaitSite) -> None:
    assert all(site.returned(50 * MS, MS // 10) for _ in range(1000))
    assert (site.waits, site.quick) == (1000, 0)


def test_a_site_that_only_returns_at_once_is_given_up(site: WaitSite) -> None:
    returns = 0
    while site.returned(2_000, 1_500):
        returns += 1
        assert returns < 100


def test_a_socket_that_waits_once_in_forty_stays(site: WaitSite) -> None:
    for _ in range(50):
        assert site.returned(50 * MS, MS // 10)
        assert all(site.returned(5_000, 4_000) for _ in range(40))


def test_a_site_that_computes_is_given_up_at_its_first_long_call(site: WaitSite) -> None:
    assert not site.returned(27 * MS, 27 * MS)
    assert site.credit_ns < FIRST_CREDIT_NS


def test_what_follows_a_return_is_remembered_and_fades(site: WaitSite) -> None:
    site.followed_by(5 * MS)
    assert site.after_ns >= 5 * MS
    for _ in range(200):
        site.followed_by(10_000)
    assert site.after_ns < PHASE_NS


def test_a_doubtful_site_is_believed_where_the_standard_library_waits(site: WaitSite) -> None:
    site.doubtful = True
    assert not site.calls(function)
    assert site.calls(time.sleep)
    assert not site.doubtful
    assert site.calls(function)  # from then on whatever is called there


def test_a_method_of_a_standard_type_is_of_the_standard_library(site: WaitSite) -> None:
    site.doubtful = True
    assert site.calls(threading.Lock().acquire)


def test_the_table_is_bounded_and_the_poorest_site_makes_room() -> None:
    sites = WaitSites()
    for offset in range(SITES_MAX):
        assert sites.learn(function.__code__, offset) is None
    poorest = sites.find(function.__code__, 7)
    assert poorest is not None
    poorest.returned(2_000, 1_500)
    assert sites.learn(function.__code__, SITES_MAX) is poorest
    assert len(sites) == SITES_MAX
    assert sites.forgotten == 1


def test_forgetting_tells_when_a_function_has_no_site_left() -> None:
    sites = WaitSites()
    sites.learn(function.__code__, 2)
    sites.learn(function.__code__, 4)
    first, second = sites
    assert not sites.forget(first)
    assert sites.forget(second)
    assert not sites.forget(second)  # it is gone already
    assert list(sites) == []


def test_the_statistics_name_function_and_line(site: WaitSite) -> None:
    site.returned(50 * MS, 0)
    shown = site.statistics()
    assert (shown.function, shown.waits, shown.wait, shown.quick) == ("function", 1, 0.05, 0)
    assert shown.file == __file__
    assert shown.line in (function.__code__.co_firstlineno, None)


def test_two_threads_may_forget_one_site() -> None:
    class Places(dict[int, WaitSite]):
        def get(self, offset: int, default: object = None) -> object:  # type: ignore[override]
            found = super().get(offset, default)
            if self.pop(offset, None) is not None:  # another thread comes between
                sites.by_code.pop(id(found.code))  # type: ignore[union-attr]
            return found

    sites = WaitSites()
    sites.learn(function.__code__, 2)
    site = sites.find(function.__code__, 2)
    assert site is not None
    sites.by_code[id(function.__code__)] = Places({2: site})
    sites.forget(site)
    assert len(sites) == 0
