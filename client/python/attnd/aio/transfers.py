"""Sessions in and out of the asyncio client; a part of AsyncClient."""

from __future__ import annotations

import asyncio
import math
from typing import Any, AsyncIterator, Optional

import grpc

from .. import _channel, _export, _moves, _transfer
from .._proto import attnd_pb2 as pb
from ..errors import AttndError, from_rpc_error
from ..types import SessionInfo
from ._threads import in_thread
from .session import AsyncSession


class AsyncTransfers:
    # Of AsyncClient:
    _stubs: Any
    _moves: _moves.MoveWatch
    _metadata: _channel.Metadata
    _timeout: Optional[float]
    _connect: Any
    _open_channel: Any
    model: Any

    async def export_session(
        self,
        session_id: str,
        file_or_path: _transfer.FileOrPath,
        move: bool = False,
        progress: Optional[_transfer.Progress] = None,
        *,
        timeout: Optional[float] = None,
    ) -> int:
        """Writes a session to a file; as Client.export_session. Files are written in threads."""
        await self._connect()
        receiver = _export.Receiver(file_or_path, progress)
        waiting = self._moves.wait(_channel.deadline(timeout, math.inf))
        export = _export.Export(session_id, move, receiver, waiting)
        try:
            await in_thread(receiver.open)
            while True:
                call = self._stubs.sessions.ExportSession(
                    export.request, timeout=waiting.left(), metadata=self._metadata
                )
                try:
                    async for response in call:
                        await in_thread(receiver.add, response.chunk)
                    return await in_thread(receiver.commit)
                except BaseException as error:
                    call.cancel()
                    pause = export.pause_after(error)
                    if pause is None:
                        if export.leaves_move(error):
                            await self._reopen(session_id)
                        if isinstance(error, grpc.RpcError):
                            raise from_rpc_error(error) from error
                        raise
                await asyncio.sleep(pause)
        finally:
            receiver.abort()

    async def _reopen(self, session_id: str) -> None:
        """Of a session whose export has failed, which is being raised."""
        try:
            await self.cancel_move(session_id, timeout=_moves.REOPEN_TIMEOUT)
        except (AttndError, grpc.RpcError):
            pass

    async def import_session(
        self,
        file_or_path: _transfer.FileOrPath,
        session_id: Optional[str] = None,
        progress: Optional[_transfer.Progress] = None,
        *,
        timeout: Optional[float] = None,
    ) -> AsyncSession:
        """A session from a file; as Client.import_session. Files are read in threads."""
        await self._connect()
        sender = await in_thread(_transfer.Sender, file_or_path, session_id, progress)

        async def requests() -> AsyncIterator[pb.ImportSessionRequest]:
            while True:
                request = await in_thread(sender.next_request)
                if request is None:
                    return
                yield request

        try:
            answer = await self._stubs.sessions.ImportSession(
                requests(),
                timeout=_channel.deadline(timeout, math.inf),
                metadata=_channel.with_affinity_key(self._metadata, sender.affinity_key),
            )
        except grpc.RpcError as error:
            raise sender.failure or from_rpc_error(error) from error
        finally:
            sender.close()
        return AsyncSession(self, SessionInfo.from_proto(answer))

    async def cancel_move(self, session_id: str, *, timeout: Optional[float] = None) -> None:
        """Opens a session for steps again; as Client.cancel_move."""
        seconds = _channel.deadline(timeout, self._timeout)
        async with self._open_channel(_channel.NARROW) as narrow:
            sessions = _channel.Stubs(narrow).sessions
            for _ in range(_moves.CANCEL_TRIES):
                failure = await self._probe_steps(session_id, seconds)
                if _moves.takes_steps(failure):
                    return
                call = sessions.ExportSession(
                    _moves.move_of(session_id), timeout=seconds, metadata=self._metadata
                )
                await call.initial_metadata()  # comes with the first part: the move has begun
                call.cancel()
                await asyncio.sleep(_moves.CANCEL_PAUSE)
        raise failure

    async def _probe_steps(
        self, session_id: str, seconds: Optional[float]
    ) -> Optional[AttndError]:
        """Why the session takes no steps; None where it does."""
        model = await self.model(timeout=seconds)
        request = _moves.probe_of(session_id, model.max_seq_len)
        try:
            await self._stubs.sessions.RewindSession(
                request, timeout=seconds, metadata=self._metadata
            )
            return None
        except grpc.RpcError as error:
            return from_rpc_error(error)
