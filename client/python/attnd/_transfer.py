"""Sessions in parts: whether they are whole, and files of them.

A file is the 8 bytes "ATTNDS1\\n", then each SessionChunk as it came, with its length in bytes
before it (4 bytes, little-endian). The last one has the digest. The C++ client reads the same.
"""

from __future__ import annotations

import os
from typing import IO, Any, Callable, Iterator, Optional, Union

from google.protobuf.message import DecodeError

from . import _xxh3
from ._proto import attnd_pb2 as pb
from .errors import DataLoss, InvalidArgument

# Told after each part: bytes of the session's rows that have passed, of how many.
Progress = Callable[[int, int], None]
FileOrPath = Union[str, "os.PathLike[str]", IO[bytes]]

MAGIC = b"ATTNDS1\n"
LENGTH_BYTES = 4
_MAX_CHUNK_BYTES = 256 << 20  # no server sends larger ones; a damaged length shall not be believed


def _damaged(message: str) -> DataLoss:
    return DataLoss(message, reason="BAD_DIGEST")


def _truncated(message: str) -> DataLoss:
    return DataLoss(message, reason="TRUNCATED")


class ChunkCheck:
    """Whether parts are a whole session; `verify`: also whether the digest is theirs.

    An import leaves that to the server, which computes the digest in any case.
    """

    def __init__(self, verify: bool):
        self._digest = _xxh3.new() if verify else None
        self._chunks = 0
        self.complete = False
        self.done_bytes = self.total_bytes = 0

    def add(self, chunk: pb.SessionChunk) -> None:
        place = f"part {self._chunks}"
        if self.complete:
            raise _damaged(f"{place}: comes after the digest; expected nothing")
        if chunk.HasField("header") != (self._chunks == 0):
            raise _damaged(f"{place}: expected a header in the first part, and there alone")
        if self._chunks == 0:
            self.total_bytes = chunk.header.data_bytes
            if self._digest:
                self._digest.update(chunk.header.SerializeToString(deterministic=True))
        self._chunks += 1
        self.done_bytes += len(chunk.data)
        if self.done_bytes > self.total_bytes:
            raise _damaged(f"{place}: more data than {self.total_bytes} bytes, as the header says")
        if self._digest and chunk.data:
            self._digest.update(chunk.data)
        if chunk.digest:
            self._end(chunk.digest)

    def _end(self, digest: bytes) -> None:
        if self.done_bytes < self.total_bytes:
            self.finish()
        if self._digest and digest != self._digest.digest():
            raise _damaged(f"digest: not that of the header and {self.done_bytes} bytes of data")
        self.complete = True

    def finish(self) -> None:
        """No more parts come."""
        if not self.complete:
            have = f"{self.done_bytes} of {self.total_bytes} bytes of data and no digest"
            what = have if self._chunks else "no header"
            raise _truncated(f"the session ends early: {what}")


def _exactly(file: Any, size: int) -> bytes:
    """`size` bytes, or as many as there are."""
    parts, left = [], size
    while left:
        data = file.read(left)
        if not data:
            break
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def _chunks(file: Any, name: str) -> Iterator[pb.SessionChunk]:
    if _exactly(file, len(MAGIC)) != MAGIC:
        raise InvalidArgument(f"{name}: not an exported session; expected ATTNDS1 at its start")
    offset = len(MAGIC)
    while True:
        head = _exactly(file, LENGTH_BYTES)
        if not head:
            return
        place = f"{name}: the part at byte {offset}"
        size = int.from_bytes(head, "little")
        if len(head) == LENGTH_BYTES and size > _MAX_CHUNK_BYTES:
            raise _damaged(f"{place} is damaged: it would have {size} bytes")
        data = _exactly(file, size) if len(head) == LENGTH_BYTES else b""
        if len(head) < LENGTH_BYTES or len(data) < size:
            raise _truncated(f"{place} is cut off")
        try:
            yield pb.SessionChunk.FromString(data)
        except DecodeError:
            raise _damaged(f"{place} is damaged: it does not parse") from None
        offset += LENGTH_BYTES + size


class Sender:
    """The requests of an import, read from a file as they are sent.

    gRPC iterates over them and would hide an exception: the iteration ends early instead, upon
    which the server refuses the session as cut, and `failure` has the reason. For that the
    digest is only sent when nothing follows it.
    """

    def __init__(self, source: FileOrPath, session_id: Optional[str], progress: Optional[Progress]):
        self.failure: Optional[BaseException] = None
        self._session_id = session_id or ""
        self._progress = progress
        self._check = ChunkCheck(verify=False)
        self._own = not hasattr(source, "read")
        self._file: Any = open(source, "rb") if self._own else source  # type: ignore[arg-type]
        self._parts = _chunks(self._file, str(getattr(self._file, "name", "the file")))
        try:
            self._next = self._read()
            assert self._next is not None  # else _read has raised
            self.affinity_key = self._next.header.affinity_key
            if not (self.affinity_key.isascii() and self.affinity_key.isprintable()):
                raise _damaged("header.affinity_key: expected printable ASCII")
        except BaseException:
            self.close()
            raise

    def _read(self) -> Optional[pb.SessionChunk]:
        chunk = next(self._parts, None)
        if chunk is None:
            self._check.finish()
        else:
            self._check.add(chunk)
        return chunk

    def next_request(self) -> Optional[pb.ImportSessionRequest]:
        """The next request; None after the last, or when one cannot be read."""
        chunk = self._next
        if chunk is None:
            return None
        try:
            if self._progress:
                self._progress(self._check.done_bytes, self._check.total_bytes)
            self._next = self._read()
        except BaseException as error:  # also of a file of the caller's own kind
            self.failure = error
            self._next = None
            return None
        request = pb.ImportSessionRequest(session_id=self._session_id, chunk=chunk)
        self._session_id = ""
        return request

    def __iter__(self) -> Iterator[pb.ImportSessionRequest]:
        return iter(self.next_request, None)

    def close(self) -> None:
        if self._own:
            self._file.close()
