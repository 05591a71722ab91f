"""Frameworks, untouched, on the executor as their loop's default.

Each test runs a plain synchronous function of a user's the way its framework runs it, and looks from
the inside: on which thread it ran, which context variables it saw, under which name it was booked.
"""
