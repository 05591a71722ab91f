"""Cancelling streams and agents at random points, by the thousand."""
