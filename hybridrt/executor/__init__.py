"""The standard library's surface over a pool, and what all pools share."""
