"""Sessions in and out of the blocking client; a part of Client."""

from __future__ import annotations

import math
import time
from typing import Any, Optional

import grpc

from . import _channel, _export, _moves, _transfer
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
            They are served again when the export fails before the file is whole, and after
            cancel_move.
          progress: called with the bytes done and the bytes in all.
          timeout: seconds for the whole export; None: no limit.

        DataLoss, BAD_DIGEST or TRUNCATED, when what came is not what was sent.
        """
        self._connect()
        receiver = _export.Receiver(file_or_path, progress)
        waiting = self._moves.wait(_channel.deadline(timeout, math.inf))
        export = _export.Export(session_id, move, receiver, waiting)
        try:
            receiver.open()
            while True:
                call = self._stubs.sessions.ExportSession(
                    export.request, timeout=waiting.left(), metadata=self._metadata
                )
                try:
                    for response in call:
                        receiver.add(response.chunk)
                    return receiver.commit()
                except BaseException as error:
                    call.cancel()
                    pause = export.pause_after(error)
                    if pause is None:
                        if export.leaves_move(error):
                            self._reopen(session_id)
                        if isinstance(error, grpc.RpcError):
                            raise from_rpc_error(error) from error
                        raise
                time.sleep(pause)
        finally:
            receiver.abort()

    def _reopen(self, session_id: str) -> None:
        """Of a session whose export has failed, which is being raised."""
        try:
            self.cancel_move(session_id, timeout=_moves.REOPEN_TIMEOUT)
        except (AttndError, grpc.RpcError):
            pass

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
        with self._open_channel(_channel.NARROW) as narrow:
            sessions = _channel.Stubs(narrow).sessions
            for _ in range(_moves.CANCEL_TRIES):
                failure = self._probe_steps(session_id, seconds)
                if _moves.takes_steps(failure):
                    return
                call = sessions.ExportSession(
                    _moves.move_of(session_id), timeout=seconds, metadata=self._metadata
                )
                call.initial_metadata()  # comes with the first part: the move has begun
                call.cancel()
                time.sleep(_moves.CANCEL_PAUSE)
        raise failure

    def _probe_steps(
        self, session_id: str, seconds: Optional[float]
    ) -> Optional[AttndError]:
        """Why the session takes no steps; None where it does."""
        model = self.model(timeout=seconds)
        request = _moves.probe_of(session_id, model.max_seq_len)
        try:
            self._stubs.sessions.RewindSession(
                request, timeout=seconds, metadata=self._metadata
            )
            return None
        except grpc.RpcError as error:
            return from_rpc_error(error)
