"""What the measurements add up to: function profiles, loop delay, windows."""
