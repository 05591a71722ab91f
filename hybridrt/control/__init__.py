"""PURE: what is to be done. No clock, no threads, no asyncio; times come in as numbers."""
