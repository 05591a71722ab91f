"""The decorator and what lives on an event loop: calls, their cancelling, their completion."""
