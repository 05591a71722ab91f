"""Act: the queue and its lanes, permits, workers, the governor, the executor."""
