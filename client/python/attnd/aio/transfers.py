"""Sessions in and out of the asyncio client; a part of AsyncClient."""

from __future__ import annotations

import asyncio
import math
from typing import Any, AsyncIterator, Optional

import grpc

from .. import _channel, _moves, _transfer
from .._proto import attnd_pb2 as pb
from ..errors import AttndError, from_rpc_error
from ..types import SessionInfo
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
        receiver = await asyncio.to_thread(_transfer.Receiver, file_or_path, progress)
        request = pb.ExportSessionRequest(session_id=session_id, move=move)
        waiting = self._moves.wait(_channel.deadline(timeout, math.inf))
        try:
            while True:
                call = self._stubs.sessions.ExportSession(
                    request, timeout=waiting.left(), metadata=self._metadata
                )
                try:
                    async for response in call:
                        await asyncio.to_thread(receiver.add, response.chunk)
                    return await asyncio.to_thread(receiver.commit)
                except grpc.RpcError as error:
                    failure = from_rpc_error(error)
                    pause = None if receiver.begun else waiting.after(failure)
                    if pause is None:
                        raise failure from error
                except BaseException as error:
                    call.cancel()
                    if move and isinstance(error, Exception):
                        await self._reopen(session_id)
                    raise
                await asyncio.sleep(pause)
        finally:
            receiver.abort()

    async def _reopen(self, session_id: str) -> None:
        try:
            await self.cancel_move(session_id)
        except AttndError:
            pass  # what made it necessary is being raised

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
        sender = await asyncio.to_thread(_transfer.Sender, file_or_path, session_id, progress)

        async def requests() -> AsyncIterator[pb.ImportSessionRequest]:
            while True:
                request = await asyncio.to_thread(sender.next_request)
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
        again = pb.ExportSessionRequest(session_id=session_id, move=True)
        async with self._open_channel(_channel.NARROW) as narrow:
            sessions = _channel.Stubs(narrow).sessions
            for _ in range(_moves.CANCEL_TRIES):
                failure = await self._probe_steps(session_id, seconds)
                if failure is None:
                    return
                if failure.reason != "SESSION_MOVING":
                    break
                call = sessions.ExportSession(again, timeout=seconds, metadata=self._metadata)
                await call.initial_metadata()  # comes with the first part: the move has begun
                call.cancel()
                await asyncio.sleep(_moves.CANCEL_PAUSE)
        raise failure

    async def _probe_steps(
        self, session_id: str, seconds: Optional[float]
    ) -> Optional[AttndError]:
        """Why the session takes no steps; None where it does, by one that changes nothing."""
        last = (await self.model(timeout=seconds)).max_seq_len
        request = pb.RewindSessionRequest(session_id=session_id, position=last)
        try:
            await self._stubs.sessions.RewindSession(
                request, timeout=seconds, metadata=self._metadata
            )
            return None
        except grpc.RpcError as error:
            return from_rpc_error(error)
