"""The profiles of an executor, one per code object, found by the function that is called.

Their number is bounded. The shared lock protects what is in them, and looking one up takes none.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from hybridrt.observe.function_name import identify
from hybridrt.observe.functions import WINDOW, Copied, Profile, copy_of
from hybridrt.observe.remembering import profile_record, restore_profile
from hybridrt.remembered import Remembered, remembered

__all__ = ["Profiles"]

_PART = "profile"


def _at_once(lock: Lock) -> Lock:
    return lock


class Profiles:
    """The profiles of one executor.

    Args:
        bound: Profiles kept at most. Beyond it the least used quarter is dropped, and its
            sums go to the profile named "other".
        without_convoy: How to wait for the lock; see `pool.lock`.
    """

    def __init__(self, bound: int = 512, *, without_convoy: Callable[[Lock], Lock] = _at_once) -> None:
        self._bound = bound
        self._without_convoy = without_convoy
        self._by_key: dict[Any, Profile] = {}
        self._other = Profile("other", "other")
        self.lock = Lock()

    def start_clean(self, lock: Lock) -> None:
        """Keep what is known, forget what runs, and be protected by `lock` from now on."""
        self.lock = lock
        for profile in self._by_key.values():
            profile.unclassified = 0

    def of(self, fn: Any, args: tuple[Any, ...] = ()) -> Profile:
        """Return the profile of `fn`, a plain function or anything callable, submitted with `args`."""
        try:
            profile = self._by_key.get(getattr(fn, "__code__", None))
        except Exception:  # an odd callable; see `identify`
            profile = None
        # A wrapper has a code object too; only those that wrap nothing are found under it.
        return self._find(fn, args) if profile is None else profile

    def _find(self, fn: Any, args: tuple[Any, ...]) -> Profile:
        key, name, resolves = identify(fn, args)
        return self.under(key, lambda: _begin(Profile(key, name, resolves=resolves), remembered))

    def keep(self, kept: Remembered) -> None:
        """Note what is known in what outlives the process; of functions that are known well enough."""
        for profile in self.all():
            if profile.calls >= WINDOW and type(profile) is Profile:
                kept.add(profile.name, profile.key, _PART, profile_record(profile))

    def under(self, key: Any, make: Callable[[], Profile]) -> Profile:
        """Return the profile kept under `key`; the first time, what `make` returns.

        Two threads that meet a key at once both make a profile, and one of them is kept.
        """
        profile = self._by_key.get(key)
        if profile is not None:
            return profile
        made = make()  # without the lock: it may log
        with self._without_convoy(self.lock):
            profile = self._by_key.get(key)  # another thread may have met it meanwhile
            if profile is None:
                if len(self._by_key) >= self._bound:
                    self._drop()
                profile = self._by_key[key] = made
                profile.owner = self
        return profile

    def known(self, key: Any) -> Profile | None:
        """Return the profile kept under `key`, if there is one; from any thread, without the lock."""
        return self._by_key.get(key)

    def all(self) -> list[Profile]:
        """Return all profiles; from any thread, without the lock."""
        return list(self._by_key.values())

    def _drop(self) -> None:
        idle = sorted((p for p in self._by_key.values() if not p.unclassified), key=lambda p: p.calls)
        for profile in idle[: max(1, self._bound // 4)]:
            del self._by_key[profile.key]
            profile.owner = None
            for name in ("calls", "failed", "wall_ns", "cpu_ns", "queue_wait_ns"):
                setattr(self._other, name, getattr(self._other, name) + getattr(profile, name))

    def copy_locked(self) -> list[tuple[Any, Copied]]:
        """Return keys and copies of the profiles with calls, to be made into values without the lock.

        No key is hashed: that of a function reads all of its bytecode.
        """
        profiles = (*self._by_key.values(), self._other)
        return [(profile.key, copy_of(profile)) for profile in profiles if profile.calls]


def _begin(profile: Profile, kept: Remembered) -> Profile:
    """Let a new profile begin with what was known about its function before."""
    if not kept.is_empty and (record := kept.of(profile.name, profile.key).get(_PART)) is not None:
        try:
            restore_profile(profile, record)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            kept.warn(profile.name, error)
    return profile
