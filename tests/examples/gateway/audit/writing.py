"""A process that writes to an audit log until it is killed; says which records are acknowledged."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gateway.audit import AuditLog

import hybridrt


async def write(folder: Path) -> None:
    """Append records from several tasks for ever; print the number of each acknowledged one."""

    async def append_for_ever() -> None:
        while True:
            receipt = await log.append({"text": "x" * 200})
            print(receipt.index, flush=True)

    async with hybridrt.Runtime():
        log = await AuditLog.open(folder, segment_bytes=20_000)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(8):
                tasks.create_task(append_for_ever())


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1])))
