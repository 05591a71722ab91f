"""The options of `offload`: what they are, and which of them go together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from hybridrt.arguments import check_choice, check_count, check_flag, check_seconds
from hybridrt.loop.router import Router
from hybridrt.placements import Placement, PlacementReason
from hybridrt.values import Isolation, Where

__all__ = ["IN_PLACE", "Options", "first_place", "in_place", "make_options", "place", "placed_alike"]

_OF_A_QUEUE = ("timeout", "queue_timeout", "limit", "lane", "abandon_on_cancel", "buffer", "batch")
"""What has no meaning for a call that runs at once and cannot be interrupted."""


def in_place() -> Placement | None:
    """Return where HYBRIDRT_WHERE in the environment has all calls run; None: where their options say.

    Raises:
        ValueError: It names another place.
    """
    where: Any = os.environ.get("HYBRIDRT_WHERE") or None
    if where is not None:
        check_choice("HYBRIDRT_WHERE", where, ("inline", "thread"))
    return where  # type: ignore[no-any-return]


IN_PLACE = in_place()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How calls of one function run; see `offload`."""

    pure: bool = False
    where: Where = "auto"
    timeout: float | None = None
    queue_timeout: float | None = None
    limit: int | None = None
    lane: object = None
    abandon_on_cancel: bool | None = None
    isolation: Isolation = "auto"
    buffer: int | None = None
    batch: int | None = None
    batch_wait: float | None = None

    def __post_init__(self) -> None:
        check_choice("isolation", self.isolation, get_args(Isolation))
        check_flag("pure", self.pure)
        if self.abandon_on_cancel is not None:
            check_flag("abandon_on_cancel", self.abandon_on_cancel)
        for name in ("timeout", "queue_timeout"):
            check_seconds(name, getattr(self, name), optional=True)
        for name in ("limit", "buffer", "batch"):
            check_count(name, getattr(self, name), least=1, optional=True)
        check_seconds("batch_wait", self.batch_wait, optional=True)
        self._check_placement()

        if self.batch_wait is not None and self.batch is None:
            raise ValueError(
                f"batch_wait goes with batch, got batch_wait={self.batch_wait!r} alone; add batch=N"
            )

    def _check_placement(self) -> None:
        if self.where == "cluster":
            raise NotImplementedError(
                "where='cluster' is not there yet; use 'isolate' for the cores of this machine, or 'thread'"
            )
        check_choice("where", self.where, ("auto", *get_args(Placement)))
        if self.where == "isolate" and not self.pure:
            raise ValueError(
                "where='isolate' needs pure=True, your word that the function shares no state and that its "
                "arguments and its result can be pickled"
            )
        if self.where == "inline":
            self._check_inline()
        if self.isolation != "auto":
            self._check_isolation()

    def _check_inline(self) -> None:
        for name in _OF_A_QUEUE:
            value = getattr(self, name)
            if value is not None and value is not False:
                raise ValueError(
                    f"where='inline' runs the call at once and to its end, so {name} has no meaning for it, "
                    f"got {name}={value!r}; leave it out, or use where='thread'"
                )

    def _check_isolation(self) -> None:
        if not self.pure or self.where not in ("auto", "isolate"):
            raise ValueError(
                f"isolation says what an isolated call runs in, got isolation={self.isolation!r} with "
                f"pure={self.pure} and where={self.where!r}, which never isolates; use pure=True and "
                "where='auto' or 'isolate', or leave it out"
            )
        if self.isolation == "interpreter" and sys.version_info < (3, 14):
            raise ValueError(
                "isolation='interpreter' needs Python 3.14 or later, this is "
                f"{sys.version_info[0]}.{sys.version_info[1]}; use 'auto' or 'process'"
            )

    @property
    def allow_loop(self) -> bool:
        """Return True if nothing is asked for that only a queue or a thread can give."""
        # A timeout of 0 takes only what is there already; a call on the loop is over before it is looked at.
        return self.limit is None and self.lane is None and self.timeout != 0

    @property
    def special(self) -> bool:
        """Return True if anything beyond the plain path is asked for."""
        return (
            self.timeout is not None
            or self.queue_timeout is not None
            or self.limit is not None
            or self.lane is not None
            or self.abandon_on_cancel is not None
        )


def make_options(make: Callable[..., Options], *args: Any) -> Options:
    """Make options from names, with an error that lists the names there are."""
    *rest, changes = args
    unknown = set(changes) - set(Options.__slots__)
    if unknown:
        raise TypeError(
            f"offload has no option {', '.join(sorted(unknown))}; it has {', '.join(Options.__slots__)}"
        )
    return make(*rest, **changes)


def first_place(options: Options) -> tuple[Placement, PlacementReason]:
    """Return where a call runs of which nothing is known, and why."""
    where = IN_PLACE or options.where
    if where == "inline" or where == "thread" or where == "isolate":
        return where, PlacementReason.FORCED
    return "thread", PlacementReason.LEARNING if options.pure else PlacementReason.NOT_PURE


def place(fn: Callable[..., Any], options: Options) -> Router | None:
    """Return what chooses where the calls of a function run; None where all run in threads."""
    where, reason = first_place(options)
    if where == "thread" and reason is not PlacementReason.LEARNING:
        return None
    forced = where if reason is PlacementReason.FORCED else None
    return Router(fn, forced=forced, on_loop=options.allow_loop)


def placed_alike(options: Options, others: Options) -> bool:
    """Return True if what was learned with some options holds with others."""
    return _placed_by(options) == _placed_by(others)


def _placed_by(options: Options) -> tuple[object, ...]:
    return options.pure, options.where, options.isolation, options.allow_loop
