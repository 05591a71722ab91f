"""Arguments of the public functions: what is wrong with one is said at once and in one form.

The type is checked before the range, and a number that is not one (`nan`) is out of every range.
"""

from __future__ import annotations

import sys

__all__ = ["check_choice", "check_count", "check_flag", "check_seconds"]


def check_count(name: str, value: object, *, least: int, unit: str = "", optional: bool = False) -> None:
    """Refuse what is no whole number, or too small.

    Args:
        name: The argument's name.
        value: What came.
        least: The smallest that will do.
        unit: What is counted, in the plural, where the name does not say it.
        optional: None will do, too.

    Raises:
        TypeError: It is no int.
        ValueError: It is too small.
    """
    if value is None and optional:
        return
    text = f"{_subject(name, unit)} an int >= {least}{_or_none(optional)}, got {value!r}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(text)
    if value < least:
        raise ValueError(text)


def check_seconds(name: str, value: object, *, zero: bool = True, optional: bool = False) -> None:
    """Refuse what is no time.

    Args:
        name: The argument's name.
        value: What came; infinity will do.
        zero: 0 will do.
        optional: None will do, too.

    Raises:
        TypeError: It is no number.
        ValueError: It is negative, 0 where that makes no sense, or `nan`.
    """
    if value is None and optional:
        return
    wanted = f"a number {'>=' if zero else '>'} 0{_or_none(optional)}"
    if isinstance(value, int) and value > sys.float_info.max:  # its digits may be too many to be shown
        raise ValueError(
            f"{_subject(name, 'seconds')} {wanted}, got more than a float can hold; use math.inf"
        )
    text = f"{_subject(name, 'seconds')} {wanted}, got {value!r}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(text)
    if not (value >= 0 if zero else value > 0):
        raise ValueError(text)


def check_flag(name: str, value: object) -> None:
    """Raise a `TypeError` if `value` is neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise a `ValueError` that lists the choices there are, if `value` is none of them."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def _subject(name: str, unit: str) -> str:
    return f"{name} is in {unit} and must be" if unit else f"{name} must be"


def _or_none(optional: bool) -> str:
    return " or None" if optional else ""
