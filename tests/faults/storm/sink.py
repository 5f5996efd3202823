"""The outside world: a process with a synced file of its own that writes down every call. The storm spares it."""

from __future__ import annotations

import asyncio
import os
import sys


async def main(path: str) -> None:
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            os.write(file, line)
            os.fdatasync(file)
            writer.write(b"ok\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main(sys.argv[1]))
