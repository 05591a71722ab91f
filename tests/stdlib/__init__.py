"""Every promise of the stdlib's `ThreadPoolExecutor`, held by ours.

A test that takes the `kind` fixture runs three times: on the stdlib class, which shows that the
promise is the stdlib's own, then on `AdaptiveThreadPoolExecutor` under both policies. `ours` runs on
our class alone; the docstring of such a test says what the stdlib does instead.
"""
