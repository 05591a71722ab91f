"""Function profiles, and the names behind wrappers."""
