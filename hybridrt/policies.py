"""What a sizing policy of one's own is made of; `docs/policies.md` has an example.

A policy is an object with `interval` (seconds), `start(limits)` and `decide(limits, state, window)`. Give it
to `Runtime(policy=...)` or `AdaptiveThreadPoolExecutor(policy=...)`. Two attributes may say more:

- `governs = "waiting"` (the default): its size is the number of waiting calls at once, and computing calls
  need a permit, as under `demand`. `"all"`: its size is the number of threads, and there are no permits.
- `reads_bytes = True`: the window has `bytes_rate`, where the platform counts bytes by thread (Linux).
"""

from __future__ import annotations

from hybridrt.control.demand import DemandPolicy
from hybridrt.control.paper import PaperPolicy
from hybridrt.control.throughput import ThroughputPolicy
from hybridrt.control.window import Limits, Policy, State, Window

__all__ = ["DemandPolicy", "Limits", "PaperPolicy", "Policy", "State", "ThroughputPolicy", "Window"]
