"""Sessions in and out of the blocking client; a part of Client."""

from __future__ import annotations

import math
import time
from typing import Any, Optional

import grpc

from . import _channel, _moves, _transfer
from ._proto import attnd_pb2 as pb
from .errors import AttndError, from_rpc_error
from .session import Session
from .types import SessionInfo


class Transfers:
    # Of Client:
    _stubs: Any
    _moves: _moves.MoveWatch
    _metadata: _channel.Metadata
    _timeout: Optional[float]
    _connect: Any
    _open_channel: Any
    model: Any

    def export_session(
        self,
        session_id: str,
        file_or_path: _transfer.FileOrPath,
        move: bool = False,
        progress: Optional[_transfer.Progress] = None,
        *,
        timeout: Optional[float] = None,
    ) -> int:
        """Writes a session, as it is at one moment, to a file; the bytes of its data.

        Args:
          file_or_path: a path is replaced when all is written and verified, and untouched before;
            to an open binary file the parts are written as they come.
          move: from now on the session's steps are refused with SESSION_MOVING, until it is closed.
            They are served again when the export fails, and after cancel_move.
          progress: called with the bytes done and the bytes in all.
          timeout: seconds for the whole export; None: no limit.

        DataLoss, BAD_DIGEST or TRUNCATED, when what came is not what was sent.
        """
        self._connect()
        receiver = _transfer.Receiver(file_or_path, progress)
        request = pb.ExportSessionRequest(session_id=session_id, move=move)
        waiting = self._moves.wait(_channel.deadline(timeout, math.inf))
        try:
            while True:
                call = self._stubs.sessions.ExportSession(
                    request, timeout=waiting.left(), metadata=self._metadata
                )
                try:
                    for response in call:
                        receiver.add(response.chunk)
                    return receiver.commit()
                except grpc.RpcError as error:
                    failure = from_rpc_error(error)
                    pause = None if receiver.begun else waiting.after(failure)
                    if pause is None:
                        raise failure from error
                except BaseException as error:
                    call.cancel()
                    if move and isinstance(error, Exception):
                        self._reopen(session_id)
                    raise
                time.sleep(pause)
        finally:
            receiver.abort()

    def _reopen(self, session_id: str) -> None:
        try:
            self.cancel_move(session_id)
        except AttndError:
            pass  # what made it necessary is being raised

    def import_session(
        self,
        file_or_path: _transfer.FileOrPath,
        session_id: Optional[str] = None,
        progress: Optional[_transfer.Progress] = None,
        *,
        timeout: Optional[float] = None,
    ) -> Session:
        """A session from a file of export_session, which continues bit for bit like the exported.

        Args:
          session_id: None: the exported session's.
          progress: called with the bytes done and the bytes in all, on a thread of gRPC's.
          timeout: seconds for the whole import; None: no limit.

        DataLoss, BAD_DIGEST or TRUNCATED, when the file is damaged; FailedPrecondition,
        MODEL_MISMATCH or FORMAT_MISMATCH, at a server with another model or cache; AlreadyExists,
        SESSION_EXISTS. The call carries the session's own affinity key.
        """
        self._connect()
        sender = _transfer.Sender(file_or_path, session_id, progress)
        try:
            answer = self._stubs.sessions.ImportSession(
                iter(sender),
                timeout=_channel.deadline(timeout, math.inf),
                metadata=_channel.with_affinity_key(self._metadata, sender.affinity_key),
            )
        except grpc.RpcError as error:
            raise sender.failure or from_rpc_error(error) from error
        finally:
            sender.close()
        return Session(self, SessionInfo.from_proto(answer))

    def cancel_move(self, session_id: str, *, timeout: Optional[float] = None) -> None:
        """Opens a session for steps again whose export with `move` has led to nothing.

        Begins the move again and cancels it. On the usual channel a small session would all have
        been sent before the cancel arrives, and the move would go on.
        """
        seconds = _channel.deadline(timeout, self._timeout)
        again = pb.ExportSessionRequest(session_id=session_id, move=True)
        with self._open_channel(_channel.NARROW) as narrow:
            sessions = _channel.Stubs(narrow).sessions
            for _ in range(_moves.CANCEL_TRIES):
                failure = self._probe_steps(session_id, seconds)
                if failure is None:
                    return
                if failure.reason != "SESSION_MOVING":
                    break
                call = sessions.ExportSession(again, timeout=seconds, metadata=self._metadata)
                call.initial_metadata()  # comes with the first part: the move has begun
                call.cancel()
                time.sleep(_moves.CANCEL_PAUSE)
        raise failure

    def _probe_steps(
        self, session_id: str, seconds: Optional[float]
    ) -> Optional[AttndError]:
        """Why the session takes no steps; None where it does, by one that changes nothing."""
        last = self.model(timeout=seconds).max_seq_len
        request = pb.RewindSessionRequest(session_id=session_id, position=last)
        try:
            self._stubs.sessions.RewindSession(
                request, timeout=seconds, metadata=self._metadata
            )
            return None
        except grpc.RpcError as error:
            return from_rpc_error(error)
