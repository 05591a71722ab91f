"""hybridrt: an event loop that stays responsive beside work that computes.

The loop runs what waits; what computes leaves it for threads that size themselves by what they do.
Start with `offload` and `run`; `Runtime` and `AdaptiveThreadPoolExecutor` are the parts.
"""

from hybridrt.errors import (
    HybridrtError,
    LaneNestingError,
    NotPortableError,
    OffloadTimeoutError,
    QueueFullError,
    RuntimeClosedError,
    WorkerLostError,
)
from hybridrt.offload import Offloaded, blocking, check_cancelled, offload
from hybridrt.pool.executor import AdaptiveThreadPoolExecutor
from hybridrt.pool.hooks import Hooks
from hybridrt.runner import run
from hybridrt.runtime import Runtime, install
from hybridrt.values import (
    CallEvent,
    Decision,
    FunctionStatistics,
    Kind,
    LoopDelay,
    Reason,
    RunningCall,
    Statistics,
)

__all__ = [
    "AdaptiveThreadPoolExecutor",
    "CallEvent",
    "Decision",
    "FunctionStatistics",
    "Hooks",
    "HybridrtError",
    "Kind",
    "LaneNestingError",
    "LoopDelay",
    "NotPortableError",
    "OffloadTimeoutError",
    "Offloaded",
    "QueueFullError",
    "Reason",
    "RunningCall",
    "Runtime",
    "RuntimeClosedError",
    "Statistics",
    "WorkerLostError",
    "blocking",
    "check_cancelled",
    "install",
    "offload",
    "run",
]
