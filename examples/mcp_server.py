"""An MCP server whose tools are plain functions, for any MCP client, over standard input and output.

    uv run --extra frameworks examples/mcp_server.py

A host starts it as a process; its configuration names the command above. The server knows nothing of
hybridrt: `hybridrt.run` in the last line instead of `anyio.run` is all. The tools then run on the runtime's
threads, so a ping is answered while they compute.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ModuleNotFoundError as error:
    message = f"expected the packages of the extra `frameworks`, got no {error.name}"
    sys.exit(f"error: {message}; run `uv run --extra frameworks examples/mcp_server.py`")

import hybridrt

server = MCPServer("documents", instructions="Reads this project's documents.")
FOLDER = Path(__file__).resolve().parent.parent / "docs"


@server.tool()
def list_documents() -> list[str]:
    """List the names of the documents."""
    return sorted(path.name for path in FOLDER.glob("*.md"))


@server.tool()
def common_words(name: str, most: int = 5) -> dict[str, int]:
    """Return the most common words of a document that have more than four letters."""
    path = FOLDER / name
    if path.parent != FOLDER or not path.is_file():
        raise ToolError(f"name must be one of list_documents, got {name!r}")
    words = (word.strip("`.,:;()*#").lower() for word in path.read_text().split())
    return dict(Counter(word for word in words if len(word) > 4).most_common(most))


@server.tool()
def slow_search(word: str) -> int:
    """Count the lines with a word in all documents; wait first, as a tool does that asks a service."""
    time.sleep(0.05)
    lines = (line for path in FOLDER.glob("*.md") for line in path.read_text().splitlines())
    return sum(word.lower() in line.lower() for line in lines)


@server.tool()
async def statistics() -> str:
    """Say what the runtime of this server knows about its tools."""
    return str(hybridrt.Runtime.current().statistics())


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    hybridrt.run(server.run_stdio_async())
