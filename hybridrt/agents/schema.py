"""Schemas: what a model is told of a function, and what its arguments must be.

Pydantic knows how a type is described and checked; here is only what a function adds to its types:
which parameters it has, which of them may be left out, and what its docstring says of each.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, Required

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, SchemaError, to_jsonable_python
from typing_extensions import TypedDict

__all__ = ["Arguments", "ArgumentsError", "Docstring", "describe", "plain_function", "read_docstring"]

Json = dict[str, Any]

_SECTION = re.compile(
    r"(Args|Arguments|Attributes|Example|Examples|Note|Notes|Raises|Returns|Warns|Yields):\s*\Z"
)
_ENTRY = re.compile(r"\*{0,2}(\w+)(?:\s*\(.*?\)(?=:))?:\s*(.*)\Z")
_ANY = inspect.Parameter.empty
_typed_dict: Any = TypedDict
"""Not under its own name, by which type checkers want to know the fields."""


class ArgumentsError(ValueError):
    """Arguments do not fit the schema; the text says which, for the model to mend them."""


@dataclass(frozen=True, slots=True)
class Docstring:
    """What a docstring in Google's style says.

    Attributes:
        text: All before the first section.
        parameters: What `Args:` says of each.
    """

    text: str
    parameters: Mapping[str, str]


def read_docstring(docstring: str | None) -> Docstring:
    """Read a docstring in Google's style; other styles are taken for text."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    first = next((number for number, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    return Docstring("\n".join(lines[:first]).strip(), dict(_entries(lines[first:])))


def _entries(lines: list[str]) -> typing.Iterator[tuple[str, str]]:
    """Yield what the section `Args:` says, each entry with its continuation lines."""
    inside, depth, name, words = False, 0, "", [""]
    for line in lines:
        if section := _SECTION.match(line):
            inside, depth = section.group(1) in ("Args", "Arguments"), 0
            continue
        indent = len(line) - len(line.lstrip())
        if not inside or not line.strip():
            continue
        depth = depth or indent
        if indent < depth:  # text after the section
            inside = False
            continue
        if indent == depth and (entry := _ENTRY.match(line.strip())):
            if name:
                yield name, " ".join(words).strip()
            name, words = entry.group(1), [entry.group(2)]
        else:
            words.append(line.strip())
    if name:
        yield name, " ".join(words).strip()


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a function may be called with.

    Attributes:
        schema: The JSON schema, an object with a property for each parameter.
    """

    schema: Json
    _adapter: TypeAdapter[Json]

    def read(self, arguments: str | Mapping[str, Any]) -> Json:
        """Return keyword arguments, with the types that the function wants.

        Args:
            arguments: A JSON object, where empty text and null are an empty one; or Python values by name.

        Raises:
            ArgumentsError: They are no JSON, or do not fit the schema.
        """
        try:
            if isinstance(arguments, str):
                text = arguments.strip()
                return self._adapter.validate_json("{}" if text in ("", "null") else text)
            return self._adapter.validate_python(dict(arguments))
        except ValidationError as error:
            complaints = (
                f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in error.errors()
            )
            raise ArgumentsError(
                f"expected arguments that fit the schema, got {'; '.join(complaints)}"
            ) from error


def describe(fn: Callable[..., Any], name: str, docstring: Docstring) -> Arguments:
    """Return what a function may be called with, by its hints and its docstring.

    Raises:
        TypeError: A schema cannot describe it; the text says which parameter and why.
    """
    hints = _hints(fn, name)
    fields: dict[str, Any] = {}
    defaults: Json = {}
    bound = _bound(fn)
    for parameter in _signature(fn, name).parameters.values():
        if parameter.name in bound:
            continue
        _check_parameter(parameter, hints, name)
        hint = hints[parameter.name]
        if parameter.default is None and not _takes_none(hint):
            hint = hint | None
        hint = _annotated(hint, docstring.parameters.get(parameter.name))
        if parameter.default is _ANY:
            fields[parameter.name] = Required[hint]
        else:
            fields[parameter.name] = NotRequired[hint]
            defaults[parameter.name] = parameter.default
    shape = _typed_dict(name, fields)
    shape.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        adapter = TypeAdapter(shape)
        schema = _without_titles(adapter.json_schema())
    except (PydanticUserError, PydanticUndefinedAnnotation, SchemaError) as error:
        reason = str(error).split("\n", 1)[0]
        raise TypeError(
            f"expected a tool whose parameters JSON can carry, got {name}: {reason}; use str, int, float, "
            "bool, list, dict, an Enum, a dataclass or a pydantic model"
        ) from error
    if unknown := fields.keys() - schema.get("properties", {}).keys():
        raise TypeError(
            f"expected parameters of {name} under their own names, got an alias for "
            f"{', '.join(sorted(unknown))}; leave the alias out, or rename the parameter"
        )
    _add_defaults(schema, defaults)
    return Arguments(schema, adapter)


def plain_function(fn: Any) -> Any:
    """Return the function below decorators and partials, which has the hints and the docstring."""
    *_, plain = _layers(fn)
    return plain


def _bound(fn: Any) -> set[str]:
    """Return the parameters that partials give by name: the model neither sees nor sets them."""
    partials = (layer for layer in _layers(fn) if isinstance(layer, functools.partial))
    return set().union(*(layer.keywords for layer in partials))


def _layers(fn: Any) -> typing.Iterator[Any]:
    """Yield a function and, one by one, what is below its decorators and partials."""
    while fn is not None:
        yield fn
        fn = fn.func if isinstance(fn, functools.partial) else getattr(fn, "__wrapped__", None)


def _signature(fn: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except (ValueError, TypeError) as error:
        raise TypeError(
            f"expected a function that says what it takes, got {name} without a signature; "
            "write a function of your own around it"
        ) from error


def _hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    plain = plain_function(fn)
    plain = plain if inspect.isroutine(plain) else type(plain).__call__
    try:
        return typing.get_type_hints(plain, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise TypeError(
            f"expected hints of {name} that can be evaluated, got {type(error).__name__}: {error}; "
            "import what they name at the top of the module, not under TYPE_CHECKING or in a function"
        ) from error


def _check_parameter(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str) -> None:
    """Refuse what a model could not be told of, or could not give."""
    wanted, what = "expected a tool with parameters that a JSON object can name", str(parameter)
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        kind = "positional-only " if parameter.kind is parameter.POSITIONAL_ONLY else ""
        raise TypeError(f"{wanted}, got {kind}{what} of {name}; give each parameter a name and a hint")
    if parameter.name not in hints:
        remedy = "give it one, as in `query: str`"
        if parameter.name in ("self", "cls"):
            remedy = "decorate no method in its class, but the bound one: tool(obj.method)"
        raise TypeError(
            f"expected a hint for every parameter of {name}, got none for {parameter.name!r}; {remedy}"
        )
    if isinstance(parameter.default, FieldInfo):
        raise TypeError(
            f"expected a plain default of {parameter.name!r} in {name}, got pydantic's Field; "
            "write `Annotated[int, Field(ge=1)] = 3`, so that plain calls get the default, too"
        )


def _takes_none(hint: Any) -> bool:
    bare = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    return bare in (Any, object, type(None)) or type(None) in typing.get_args(bare)


def _annotated(hint: Any, description: str | None) -> Any:
    """Return the hint with what the docstring says; a description of the hint's own goes first."""
    if not description:
        return hint
    if typing.get_origin(hint) is Annotated:
        bare, *metadata = typing.get_args(hint)
        return Annotated[(bare, Field(description=description), *metadata)]
    return Annotated[hint, Field(description=description)]


def _add_defaults(schema: Json, defaults: Json) -> None:
    for name, default in defaults.items():
        try:
            value = to_jsonable_python(default)
            json.dumps(value, allow_nan=False)
        except (PydanticSerializationError, ValueError):
            continue  # the function knows it; the model need not
        schema["properties"][name].setdefault("default", value)


def _without_titles(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without the titles that only repeat names, which cost the model tokens.

    Args:
        schema: The schema or a part of it.
        names: Its keys are names of the user's own, among which may be "title".
    """
    if isinstance(schema, list):
        return [_without_titles(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        key: _without_titles(value, names=key in ("properties", "$defs") and not names)
        if key not in ("default", "const", "enum", "examples") or names
        else value
        for key, value in schema.items()
        if key != "title" or names
    }
    if not names and plain.get("type") == "array":  # OpenAI refuses one without `items`, as of a tuple
        kinds = plain.get("prefixItems") or [{}]
        alike = all(kind == kinds[0] for kind in kinds)
        plain.setdefault("items", kinds[0] if alike else {"anyOf": kinds})
    return plain
