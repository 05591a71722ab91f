"""Pipes: a source and stages that overlap, joined by bounded streams. Importing it imports anyio."""
