"""What lives on an event loop: calls that a coroutine awaits, and their completion in batches."""
