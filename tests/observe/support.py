"""What the tests of profiles share."""

from __future__ import annotations

from hybridrt.observe.functions import Profile

__all__ = ["MS", "US", "asked"]

US, MS = 1_000, 1_000_000


def asked(calls: int, wall: int, cpu: int, *, run_delay: int = 0, gil_wait: int = 0) -> Profile:
    """Return the profile of a function whose calls were all asked for their waits."""
    profile = Profile("key", "module:name")
    for _ in range(calls):
        profile.record(wall, cpu, 0, run_delay, gil_wait)
    return profile
