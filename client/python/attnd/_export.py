"""Exports of either client: the file that is written, and what follows a failure."""

from __future__ import annotations

import errno
import os
import tempfile
from typing import Any, Optional

import grpc

from ._moves import MoveWait
from ._proto import attnd_pb2 as pb
from ._transfer import LENGTH_BYTES, MAGIC, ChunkCheck, FileOrPath, Progress
from .errors import from_rpc_error


class Receiver:
    """Takes the parts of an export, verifies them and writes the file.

    A path is replaced when all is there, and untouched before; its file is readable by its owner
    alone, for it holds what was said. An open file is written to as it is.
    """

    def __init__(self, target: FileOrPath, progress: Optional[Progress]):
        self._check = ChunkCheck(verify=True)
        self._progress = progress
        self._path: Any = None
        self._draft = ""
        self._file: Any = None
        if hasattr(target, "write"):
            self._file = target
        else:
            self._path = os.fspath(target)  # type: ignore[arg-type]
        self.begun = False  # whether a part has come
        self.whole = False  # whether the file, where it is to be, has the whole session

    def open(self) -> None:
        """Makes the draft of a path."""
        if self._path is None:
            return
        # A file takes the path's place in the end: /dev/null would be gone.
        if os.path.exists(self._path) and not os.path.isfile(self._path):
            text = "not a file, which an export would replace; open it to write to it"
            raise FileExistsError(errno.EEXIST, text, self._path)
        folder, name = os.path.split(self._path)
        fd, self._draft = tempfile.mkstemp(prefix=name + ".", dir=folder or ".")
        self._file = os.fdopen(fd, "wb")

    def add(self, chunk: pb.SessionChunk) -> None:
        self._check.add(chunk)
        data = chunk.SerializeToString()
        if not self.begun:
            self._file.write(MAGIC)
            self.begun = True
        self._file.write(len(data).to_bytes(LENGTH_BYTES, "little"))
        self._file.write(data)
        self.whole = self._check.complete and self._path is None
        if self._progress:
            self._progress(self._check.done_bytes, self._check.total_bytes)

    def commit(self) -> int:
        """Puts the file in its place, once it is durable; the bytes of data."""
        self._check.finish()
        if self._path is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._draft, self._path)
            self._draft, self.whole = "", True
            _sync_folder(os.path.dirname(self._path) or ".")
        return self._check.done_bytes

    def abort(self) -> None:
        """Removes what is not committed."""
        if self._draft:
            self._file.close()
            os.unlink(self._draft)
            self._draft = ""


def _sync_folder(path: str) -> None:
    """Makes durable which files a folder has, where one may and can."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


class Export:
    """What is asked for, and what follows a failure."""

    def __init__(self, session_id: str, move: bool, receiver: Receiver, waiting: MoveWait):
        self.request = pb.ExportSessionRequest(session_id=session_id, move=move)
        self._receiver = receiver
        self._waiting = waiting

    def pause_after(self, error: BaseException) -> Optional[float]:
        """Seconds before the same is sent again; None: the error is final."""
        if not isinstance(error, grpc.RpcError) or self._receiver.begun:
            return None
        return self._waiting.after(from_rpc_error(error))

    def leaves_move(self, error: BaseException) -> bool:
        """Whether the server may have the session moving after a final error, and nobody has it.

        A server that refused has begun nothing: a move that it speaks of is somebody else's.
        """
        if not self.request.move or self._receiver.whole or not isinstance(error, Exception):
            return False
        if isinstance(error, grpc.RpcError) and not self._receiver.begun:
            return not from_rpc_error(error).reason
        return True
