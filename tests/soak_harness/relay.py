"""A TCP relay before the server, whose connections can be broken as those of a dead client are."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Set

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset and drops what is not sent


class Relay:
    """Forwards a free port of 127.0.0.1 to `target`, "host:port"."""

    def __init__(self, target: str):
        host, _, port = target.rpartition(":")
        self._host, self._port = host, int(port)
        self._writers: Set[asyncio.StreamWriter] = set()
        self._server: asyncio.AbstractServer
        self.address = ""

    async def start(self) -> "Relay":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = "127.0.0.1:%d" % self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        self._server.close()
        self.break_all()
        await self._server.wait_closed()

    def break_all(self) -> int:
        """Resets both sides of every connection; how many connections there were."""
        writers, self._writers = self._writers, set()
        for writer in writers:
            with contextlib.suppress(OSError):  # closed meanwhile
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        return len(writers) // 2

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_reader, to_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, to_writer}
        try:
            await asyncio.gather(self._pump(reader, to_writer), self._pump(to_reader, writer))
        finally:
            for one in (writer, to_writer):
                self._writers.discard(one)
                one.close()

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
