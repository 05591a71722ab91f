"""The tool calls that a reply asks for, joined from the pieces in which they come."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

__all__ = ["RequestedCall", "RequestedCalls"]

Json = dict[str, Any]

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(slots=True)
class RequestedCall:
    """A tool call as it comes together.

    Attributes:
        extra: What the endpoint wants back beside it; Gemini signs its thoughts there.
    """

    id: str = ""
    name: str = ""
    arguments: str = ""
    extra: Json | None = None

    def message(self) -> Json:
        """Return it as the protocol writes it, with a name and arguments that the endpoint can read again."""
        name = _NOT_IN_A_NAME.sub("_", self.name)[:64] or "unnamed"
        function = {"name": name, "arguments": _as_object(self.arguments)}
        message = {"id": self.id, "type": "function", "function": function}
        return message if self.extra is None else {**message, "extra_content": self.extra}


def _as_object(arguments: str) -> str:
    """Return arguments as they came if they are a JSON object: some endpoints refuse all others."""
    try:
        if isinstance(json.loads(arguments), dict):
            return arguments
    except (ValueError, RecursionError):
        pass
    return "{}" if arguments.strip() in ("", "null") else json.dumps({"invalid_arguments": arguments})


class RequestedCalls(list[RequestedCall]):
    """The calls of one reply, in the order in which they began."""

    def __init__(self) -> None:
        super().__init__()
        self._numbered: dict[int, RequestedCall] = {}

    def add(self, piece: Json) -> None:
        """Add a piece to the call that it belongs to; some endpoints send no index or no id."""
        number, id, function = piece.get("index"), piece.get("id") or "", piece.get("function") or {}
        number = -1 if number is None else number
        name, arguments = function.get("name") or "", function.get("arguments") or ""
        call = self._numbered.get(number)
        if call is None or _begins_another(call, id, name, numbered=number >= 0):
            call = self._numbered[number] = RequestedCall()
            self.append(call)
        call.id = call.id or id
        if name != call.name:  # some repeat it in each piece, others split it
            call.name += name
        call.arguments += arguments if isinstance(arguments, str) else json.dumps(arguments)
        call.extra = piece.get("extra_content") or call.extra


def _begins_another(call: RequestedCall, id: str, name: str, *, numbered: bool) -> bool:
    """Return True if a piece with the index of a call, or without one as that call, is not a part of it.

    Some endpoints give all calls one index, so another id begins another call; with a name, because others
    give each piece of a call an id of its own. Where it has none, a name after arguments does, if
    the call has no id or another name.
    """
    if id:
        return id != call.id and (not numbered or bool(call.id and name))
    return bool(name and call.arguments and (not call.id or name != call.name))
