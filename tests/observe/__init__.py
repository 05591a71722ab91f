"""Function profiles, the names behind wrappers, loop delay."""
