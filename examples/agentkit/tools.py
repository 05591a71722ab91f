"""The tools of the example: each is a plain function, and each wants another place.

They are in a module of their own, and not in the program, so that another process can import them.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import Any

import aiohttp

from hybridrt import offload, tool

__all__ = ["TOOLS", "open_shop", "orders_as_json", "revenue", "search_catalogue", "stock"]

_WORDS = ("oak", "pine", "steel", "linen", "blue", "green", "small", "large", "folding", "round")
_THINGS = ("table", "chair", "lamp", "shelf", "desk", "bench", "mirror", "stool")
_shop: dict[str, Any] = {}


def open_shop(session: aiohttp.ClientSession, url: str) -> None:
    """Say where the shop's site is; before the first question."""
    _shop.update(session=session, url=url)


def orders_as_json(count: int) -> str:
    """Return some orders, as a shop's export has them; 10,000 are about 1 MB."""
    things = len(_THINGS)
    orders = [
        {
            "order": number,
            "thing": _THINGS[number % things],
            "pieces": 1 + number % 5,
            "price": 9.5,
            "note": "-" * 40,
        }
        for number in range(count)
    ]
    return json.dumps(orders)


@tool(pure=True, timeout=10.0)
def revenue(thing: str, orders: int = 10_000) -> dict[str, Any]:
    """Sum up what was sold of a thing.

    Parsing the export is one C call that holds the GIL: in a thread it would stop the event loop, so the
    function is pure and may run in another process.

    Args:
        thing: What was sold, as "chair".
        orders: How many orders the export has.
    """
    sold = [order for order in json.loads(orders_as_json(orders)) if order["thing"] == thing]
    return {"thing": thing, "orders": len(sold), "revenue": sum(o["pieces"] * o["price"] for o in sold)}


def _catalogue() -> sqlite3.Connection:
    if "catalogue" not in _shop:
        catalogue = sqlite3.connect(":memory:", check_same_thread=False)
        catalogue.execute("CREATE VIRTUAL TABLE things USING fts5(name)")
        names = [(f"{one} {other} {thing}",) for one in _WORDS for other in _WORDS for thing in _THINGS]
        catalogue.executemany("INSERT INTO things VALUES (?)", names)
        _shop["catalogue"] = catalogue
    found: sqlite3.Connection = _shop["catalogue"]
    return found


@tool
@offload(lane="catalogue")
def search_catalogue(words: str, count: int = 3) -> list[str]:
    """Search the catalogue for things by their words.

    A connection to SQLite is for one thread at a time, so calls of this lane never overlap.

    Args:
        words: All of them must occur.
        count: How many to return at most.
    """
    query = " ".join(f'"{word}"' for word in words.replace('"', " ").split())
    rows = _catalogue().execute("SELECT name FROM things WHERE things MATCH ? LIMIT ?", (query, count))
    return [name for (name,) in rows]


@tool(timeout=5.0, retries=3, retry_on=(aiohttp.ClientError, asyncio.TimeoutError), limit=8)
async def stock(thing: str) -> dict[str, Any]:
    """Ask the warehouse how many there are.

    It waits for a server, so it is a coroutine and runs on the loop. Every third request fails.

    Args:
        thing: What to look for, as "chair".
    """
    async with _shop["session"].get(f"{_shop['url']}/stock/{thing}") as response:
        response.raise_for_status()
        answer: dict[str, Any] = await response.json()
        return answer


TOOLS = (revenue, search_catalogue, stock)
