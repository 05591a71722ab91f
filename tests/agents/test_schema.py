"""What a model is told of a function, and what its arguments must be."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import Field

from hybridrt import offload, tool
from hybridrt.agents import ArgumentsError, Tool
from hybridrt.agents.schema import read_docstring
from tests.agents.examples import Colour, Place, Point, everything


def test_hints_and_docstring_become_the_schema() -> None:
    described = tool(everything)
    assert described.name == "everything"
    assert described.description == "Show what may be described.\n\nIt has a second paragraph."
    properties = described.parameters["properties"]
    assert list(properties) == ["text", "number", "colour", "place", "order", "names", "title"]
    assert properties["text"] == {"type": "string", "description": "Some text on two lines."}
    assert properties["number"] == {"type": "integer", "minimum": 1, "description": "Said by the hint."}
    assert properties["order"] == {"type": "string", "enum": ["up", "down"], "default": "up"}
    assert properties["names"]["default"] is None
    assert properties["title"]["description"] == "A parameter named like a keyword of JSON schema."
    assert described.parameters["required"] == ["text", "number", "colour", "place"]
    assert described.parameters["additionalProperties"] is False


def test_titles_that_only_repeat_names_are_left_out_but_not_fields_of_that_name() -> None:
    place = tool(everything).parameters["$defs"]["Place"]
    assert "title" not in place
    assert place["properties"]["title"] == {"type": "string"}


def test_the_definition_is_what_the_protocol_wants() -> None:
    @tool(name="look-up", description="Looks up.")
    def find(query: str) -> str:
        """Not told."""
        return query

    assert find.definition() == {
        "type": "function",
        "function": {
            "name": "look-up",
            "description": "Looks up.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}},
                "required": ["query"],
                "additionalProperties": False,
            },
        },
    }


async def test_arguments_reach_the_function_as_the_types_of_its_hints() -> None:
    seen: list[Any] = []

    @tool
    async def keep(colour: Colour, place: Place, points: list[Point], ratio: float = 0.5) -> None:
        seen.extend([colour, place, points, ratio])

    await keep.invoke('{"colour": "red", "place": {"title": "a", "point": {"x": 1}}, "points": [{"x": 2}]}')
    assert seen == [Colour.RED, Place(title="a", point=Point(1)), [Point(2)], 0.5]


@tool
def search(query: str, count: int = 3) -> str:
    """Search."""
    return f"{query} {count}"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ('{"query": ', "JSON"),
        ("[1]", "arguments: "),
        ("", "query: "),
        ('{"query": "x", "count": "many"}', "count: "),
        ('{"query": "x", "colour": 1}', "colour: "),
        ({"query": 1}, "query: "),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_with_what_is_wrong(
    arguments: Any, complaint: str
) -> None:
    with pytest.raises(ArgumentsError, match="expected arguments that fit the schema, got") as caught:
        await search.invoke(arguments)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("arguments", ["", "  ", "{}", "null"])
async def test_no_arguments_may_be_written_in_several_ways(arguments: str) -> None:
    @tool
    def ping() -> str:
        return "pong"

    assert await ping.invoke(arguments) == "pong"


def test_a_module_that_only_makes_tools_does_not_import_the_client() -> None:
    program = "import sys, tests.agents.examples; assert 'openai' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)


def bare(query) -> str:  # type: ignore[no-untyped-def]
    return str(query)


def variadic(*queries: str) -> str:
    return " ".join(queries)


def keywords(**queries: str) -> str:
    return " ".join(queries)


def by_position(query: str, /) -> str:
    return query


def takes_code(code: Callable[[], int]) -> int:
    return code()


def takes_an_object(thing: threading_lock) -> None:  # type: ignore[name-defined]  # noqa: F821
    return None


def takes_anything(thing: object, other: Iterator[Any] | complex) -> None:
    return None


def defaults_to_a_field(count: int = Field(3, ge=1)) -> int:
    return count


def under_an_alias(count: Annotated[int, Field(alias="n")] = 3) -> int:
    return count


def looks_ahead(text: Annotated[str, Field(pattern="(?=x)y")]) -> str:
    return text


def generates(count: int) -> Iterator[int]:
    yield count


async def generates_slowly(count: int) -> AsyncIterator[int]:
    yield count


class Shop:
    def find(self, query: str) -> str:
        """Find something."""
        return f"{self.name}: {query}"

    name = "shop"


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        (bare, "expected a hint for every parameter of bare, got none for 'query'; give it one"),
        (Shop.find, r"none for 'self'; decorate no method in its class.*tool\(obj.method\)"),
        (variadic, r"got \*queries: .*str.* of variadic"),
        (keywords, r"got \*\*queries: .*str.* of keywords"),
        (by_position, "got positional-only query: .*str.* of by_position"),
        (takes_code, "whose parameters JSON can carry, got takes_code"),
        (takes_an_object, "hints of takes_an_object that can be evaluated, got NameError"),
        (takes_anything, "whose parameters JSON can carry, got takes_anything"),
        (defaults_to_a_field, r"a plain default of 'count' .* write `Annotated\[int, Field"),
        (under_an_alias, "under their own names, got an alias for count; leave the alias out"),
        (looks_ahead, "whose parameters JSON can carry, got looks_ahead"),
        (generates, "returns one value, got the generator function generates"),
        (generates_slowly, "returns one value, got the generator function generates_slowly"),
        (lambda: 1, "expected a tool's name of 1 to 64 letters.*got '<lambda>'"),
        (functools.partial(everything, "x"), r"tool\(name="),
        (7, "expected a function for a tool, got 7"),
        (staticmethod(by_position), "expected a function for a tool"),
    ],
)
def test_what_no_schema_describes_is_refused_at_decoration(fn: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        tool(fn)


def test_a_batched_function_is_no_tool() -> None:
    def lengths(texts: list[str]) -> list[int]:
        return [*map(len, texts)]

    with pytest.raises(TypeError, match=r"got lengths, which takes a list of them \(batch=\)"):
        tool(offload(lengths, batch=2))


async def test_a_default_that_json_cannot_carry_is_the_functions_own() -> None:
    def wait(seconds: float = math.inf, start: float = math.nan) -> bool:
        return seconds == math.inf

    made = tool(wait)
    assert [*made.parameters["properties"]["seconds"]] == ["type"]
    assert await made.invoke("{}") is True


async def test_a_default_of_none_may_be_given_too() -> None:
    def count(most: int = None, text: str | None = None, other: Any = None) -> bool:  # type: ignore[assignment]  # noqa: RUF013
        return most is None

    made = tool(count)
    assert made.parameters["properties"]["most"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert made.parameters["properties"]["other"] == {"default": None}
    assert await made.invoke('{"most": null}') is True
    with pytest.raises(ArgumentsError):
        await made.invoke('{"most": "many"}')


async def test_a_bound_method_and_a_partial_are_tools() -> None:
    method: Tool[..., str] = tool(Shop().find)
    assert (method.name, method.description) == ("find", "Find something.")
    assert await method.invoke('{"query": "tea"}') == "shop: tea"
    partial = tool(functools.partial(Shop().find, "milk"), name="milk")
    assert partial.description == "Find something."
    assert await partial.invoke() == "shop: milk"


@pytest.mark.parametrize("wrap", [lambda fn: fn, offload], ids=["partial", "offloaded partial"])
async def test_what_a_partial_gives_by_name_is_the_functions_own(wrap: Callable[[Any], Any]) -> None:
    def find(query: str, token: str, count: int = 3) -> str:
        return f"{query} {token} {count}"

    made = tool(wrap(functools.partial(find, token="secret")), name="find")
    assert [*made.parameters["properties"]] == ["query", "count"]
    assert await made.invoke('{"query": "x"}') == "x secret 3"
    with pytest.raises(ArgumentsError, match="token: "):
        await made.invoke('{"query": "x", "token": "other"}')


class Corner(NamedTuple):
    x: int
    label: str


async def test_tuples_say_what_their_items_are() -> None:
    async def draw(size: tuple[int, int], corner: Corner, prefixItems: int = 0) -> str:
        return f"{size} {corner.label}"

    made = tool(draw)
    properties, corner = made.parameters["properties"], made.parameters["$defs"]["Corner"]
    assert properties["size"]["items"] == {"type": "integer"}
    assert corner["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert properties["prefixItems"] == {"type": "integer", "default": 0}
    assert await made.invoke('{"size": [1, 2], "corner": [1, "a"]}') == "(1, 2) a"
    with pytest.raises(ArgumentsError):
        await made.invoke('{"size": [1, 2, 3], "corner": [1, "a"]}')


def test_an_empty_tuple_has_items_too() -> None:
    async def draw(nothing: tuple[()], type: str = "array") -> str:
        return f"{nothing} {type}"

    nothing, kind = tool(draw).parameters["properties"].values()
    assert nothing == {"type": "array", "items": {}, "minItems": 0, "maxItems": 0}
    assert kind == {"type": "string", "default": "array"}


def test_an_offloaded_function_is_described_like_the_function() -> None:
    assert tool(offload(everything)).definition() == tool(everything).definition()


@pytest.mark.parametrize(
    ("docstring", "text", "parameters"),
    [
        (None, "", {}),
        ("One line.", "One line.", {}),
        ("Text.\n\nArgs:\n    a: The a.\n    *b: The b.\n", "Text.", {"a": "The a.", "b": "The b."}),
        ("Text.\n\nReturns:\n    Much.\n\nArgs:\n    a (int, optional): A.\n", "Text.", {"a": "A."}),
        (
            "Text.\n\nArgs:\n    a: One\n        two: three.\n\n    b: B.",
            "Text.",
            {"a": "One two: three.", "b": "B."},
        ),
        (
            "Text.\n\nArgs:\n    a (int, default=(1)): A.\n    b (list[(int)]): B (c): d.",
            "Text.",
            {"a": "A.", "b": "B (c): d."},
        ),
        ("Text.\n\n  Args:\n      a: The a.\n\n  More.\n", "Text.", {"a": "The a."}),
        ("Args: in the middle of a text.", "Args: in the middle of a text.", {}),
    ],
)
def test_a_docstring_is_read_in_googles_style(
    docstring: str | None, text: str, parameters: dict[str, str]
) -> None:
    read = read_docstring(docstring)
    assert (read.text, dict(read.parameters)) == (text, parameters)
