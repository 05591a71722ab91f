"""The tool calls that a reply asks for, joined from the pieces in which they come."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["RequestedCall", "RequestedCalls"]

Json = dict[str, Any]


@dataclass(slots=True)
class RequestedCall:
    """A tool call as it comes together."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def message(self) -> Json:
        """Return it as the protocol writes it, with arguments that the endpoint can read again."""
        function = {"name": self.name, "arguments": _as_object(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


def _as_object(arguments: str) -> str:
    """Return arguments as they came if they are a JSON object: some endpoints refuse all others."""
    try:
        if isinstance(json.loads(arguments), dict):
            return arguments
    except (ValueError, RecursionError):
        pass
    return json.dumps({"invalid_arguments": arguments}) if arguments.strip() else "{}"


class RequestedCalls(list[RequestedCall]):
    """The calls of one reply, in the order in which they began."""

    def __init__(self) -> None:
        super().__init__()
        self._numbered: dict[int, RequestedCall] = {}

    def add(self, piece: Json) -> None:
        """Add a piece to the call that it belongs to.

        Those of one call share an index, and all but the first lack the id. Where an endpoint sends neither,
        a name after arguments begins another call.
        """
        number, id, function = piece.get("index"), piece.get("id"), piece.get("function") or {}
        number = -1 if number is None else number
        call = self._numbered.get(number)
        if (
            call is None
            or (id and id != call.id and (call.id or number < 0))
            or (not id and function.get("name") and call.arguments)
        ):
            call = self._numbered[number] = RequestedCall()
            self.append(call)
        call.id = id or call.id
        call.name += function.get("name") or ""
        call.arguments += function.get("arguments") or ""
