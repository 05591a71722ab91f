"""A worker that would only wait for a queued call runs it itself.

The rules of the lock are those of `scheduler`.
"""

from __future__ import annotations

from collections import OrderedDict

from hybridrt.pool.lock import without_convoy
from hybridrt.pool.scheduler import dispatch_locked, left_queue_locked
from hybridrt.pool.state import ASSIGNED, QUEUED, RUNNING, Call, Worker

__all__ = ["claim_for_help"]


def claim_for_help(worker: Worker, call: Call) -> bool:
    """Claim a queued call for the worker whose thread waits for it, whatever the limits say.

    The thread would only block otherwise, so it computes no more than before. A call behind a limiter
    is left alone, because its lane is taken, perhaps by the very thread that asks; so is one that
    has been assigned to another worker.
    """
    pool = call.pool
    with without_convoy(pool.lock):
        place = call.place
        if call.state == ASSIGNED and place is worker.batch:
            try:
                worker.batch.remove(call)
            except ValueError:  # it is the one that asks
                return False
        elif call.state != QUEUED or call.limiters_passed < len(call.limiters) or place is pool.backlog:
            return False
        else:
            assert isinstance(place, OrderedDict)
            del place[call]
            left_queue_locked(pool, 1)
        call.place = None
        call.state = RUNNING
        to_start = dispatch_locked(pool)
    pool.start(to_start)
    return True
