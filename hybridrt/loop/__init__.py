"""What lives on an event loop: calls that a coroutine awaits, and their completion in batches."""

from hybridrt.loop import submitted as submitted  # the executor asks it for calls
