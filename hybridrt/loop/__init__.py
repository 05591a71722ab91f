"""What lives on an event loop: calls that a coroutine awaits, and their completion in batches."""

from hybridrt.loop import executor_call as executor_call  # the executor asks it for calls
