"""Tools: functions a model may call, with the schema it sees and the checks its arguments pass."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

__all__ = ["Tool", "Toolbox"]

A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Tool(Generic[A]):
    """A tool: the model of its arguments names and describes it, its docstring included."""

    name: str
    arguments: type[A]
    function: Callable[[A], Awaitable[str]]

    def schema(self) -> dict[str, Any]:
        """Return the tool as the chat completions protocol describes one."""
        function = {
            "name": self.name,
            "description": (self.arguments.__doc__ or "").strip(),
            "parameters": self.arguments.model_json_schema(),
        }
        return {"type": "function", "function": function}

    async def call(self, arguments: str) -> str:
        """Check the arguments, given as JSON, and call the function."""
        return await self.function(self.arguments.model_validate_json(arguments or "{}"))


class Toolbox:
    """Some tools by name. A call never raises an `Exception`: the model gets the error as text."""

    def __init__(self, *tools: Tool[Any]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def schemas(self) -> list[dict[str, Any]]:
        """Return all tools as the protocol describes them."""
        return [tool.schema() for tool in self._tools.values()]

    async def call(self, name: str, arguments: str) -> str:
        """Call a tool by name with JSON arguments; return its result, or what went wrong."""
        tool = self._tools.get(name)
        if tool is None:
            return _error(f"expected one of the tools {', '.join(self._tools)}, got {name!r}")
        try:
            return await tool.call(arguments)
        except ValidationError as error:
            return _error(f"expected arguments that fit the schema, got {_complaints(error)}")
        except Exception as error:  # whatever a tool raises, the model may find another way
            return _error(f"{type(error).__name__}: {error}")


def _error(message: str) -> str:
    return json.dumps({"error": message})


def _complaints(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in error.errors()
    )
