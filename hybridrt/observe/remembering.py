"""A profile as it is kept from one run to the next: kind, costs, and what was seen of the GIL."""

from __future__ import annotations

from hybridrt.observe.functions import WINDOW, Profile
from hybridrt.remembered import Record
from hybridrt.values import Kind

__all__ = ["profile_record", "restore_profile"]

_COUNTS = ("free", "taken", "yielded", "held", "waiting", "longest_hold_ns")


def profile_record(profile: Profile) -> Record:
    """Return what is kept of a profile."""
    return {
        "kind": profile.kind,
        "cpu_ns": profile.cpu_mean_ns,
        "wait_ns": profile.wait_mean_ns,
        "corrected": profile.corrected,
        "parallel": profile.parallel,
        "releases": profile.gil.releases,
        "gil": [getattr(profile.gil, name) for name in _COUNTS],
    }


def restore_profile(profile: Profile, record: Record) -> None:
    """Begin with what was known before; the first calls confirm it or not.

    Raises:
        KeyError, TypeError, ValueError, OverflowError: It is no record of a profile, which is as it was.
    """
    kind, counts = Kind(record["kind"]), [int(count) for count in record["gil"]]
    cpu_ns, wait_ns = int(record["cpu_ns"]), int(record["wait_ns"])
    parallel = None if record["parallel"] is None else float(record["parallel"])
    figures = dict(zip(_COUNTS, counts, strict=True))
    profile.kind, profile.cpu_mean_ns, profile.wait_mean_ns = kind, cpu_ns, wait_ns
    profile.corrected, profile.parallel = bool(record["corrected"]), parallel
    profile.gil.releases = bool(record["releases"])
    for name, count in figures.items():
        setattr(profile.gil, name, count)
    profile.turn_at = WINDOW  # one call alone does not refute it
