"""The engine: lanes, permits, workers, the governor, and what `statistics()` says of them."""
