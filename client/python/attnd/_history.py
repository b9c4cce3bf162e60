"""What a session was sent, as it was on the wire: enough to make it anew."""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from ._proto import attnd_pb2 as pb

_REPLAY_ROWS = 1024  # of one call


class _Layer:
    """The rows of one layer, in runs of one dtype."""

    def __init__(self) -> None:
        self.runs: List[Tuple[int, int, bytearray]] = []  # wire dtype, bytes a row, rows
        self.length = 0
        self.last_start = 0  # where the last step began: it can be repeated, so it is sent alone

    def cut(self, position: int) -> None:
        self.last_start = min(self.last_start, position)
        while self.length > position:
            dtype, size, rows = self.runs[-1]
            drop = min(self.length - position, len(rows) // size)
            del rows[len(rows) - drop * size :]
            self.length -= drop
            if not rows:
                self.runs.pop()

    def append(self, dtype: int, size: int, data: bytes) -> None:
        self.last_start = self.length
        if not self.runs or self.runs[-1][:2] != (dtype, size):
            self.runs.append((dtype, size, bytearray()))
        self.runs[-1][2].extend(data)
        self.length += len(data) // size

    def copy(self, end: int) -> "_Layer":
        twin = _Layer()
        twin.runs = [(dtype, size, bytearray(rows)) for dtype, size, rows in self.runs]
        twin.length, twin.last_start = self.length, self.last_start
        twin.cut(end)
        return twin


class History:
    """The rows that every layer of a session holds.

    A row of a layer takes d_model elements of the wire's dtype, and buffers that grow up to an
    eighth more. Past `max_bytes` (None: no limit) everything is let go.
    """

    def __init__(self, num_layers: int, max_bytes: Optional[int] = None):
        self._layers = [_Layer() for _ in range(num_layers)]
        self.max_bytes = max_bytes
        self.bytes = 0
        self.version = 0  # changes with the rows
        self.complete = True  # whether a session can be made from it

    @property
    def num_layers(self) -> int:
        return len(self._layers)

    def length(self, layer: int) -> int:
        return self._layers[layer].length

    def put(self, layer: int, position: int, hidden: pb.Tensor) -> None:
        """The layer was cut to `position`, and these rows were appended."""
        if not self.complete:
            return
        kept = self._layers[layer]
        if position > kept.length:  # rows that were never seen here are before these
            self._let_go()
            return
        data = hidden.data
        kept.cut(position)
        kept.append(hidden.dtype, len(data) // hidden.shape[0], data)
        self._count()

    def cut(self, position: int) -> None:
        """Every layer longer than `position` was cut to it."""
        for kept in self._layers:
            kept.cut(position)
        self._count()

    def _count(self) -> None:
        self.version += 1
        self.bytes = sum(len(rows) for kept in self._layers for _, _, rows in kept.runs)
        if self.max_bytes is not None and self.bytes > self.max_bytes:
            self._let_go()

    def _let_go(self) -> None:
        self._layers = [_Layer() for _ in self._layers]
        self.complete, self.bytes = False, 0
        self.version += 1

    def copy(self, position: int) -> "History":
        """That of a fork which holds [0, position), or with 0 each layer as it is."""
        twin = History(len(self._layers), self.max_bytes)
        twin.complete = self.complete
        twin._layers = [kept.copy(position or kept.length) for kept in self._layers]
        twin._count()
        return twin

    def tensors(self, layer: int, start: int, max_bytes: int) -> Iterator[Tuple[int, pb.Tensor]]:
        """The rows from `start` on, in calls of at most max_bytes, and where each begins."""
        kept, first = self._layers[layer], 0
        for dtype, size, rows in kept.runs:
            count = len(rows) // size
            step = max(1, min(_REPLAY_ROWS, max_bytes // size))
            at = max(start, first)
            while at < first + count:
                end = min(at + step, first + count)
                if at < kept.last_start:
                    end = min(end, kept.last_start)
                data = bytes(memoryview(rows)[(at - first) * size : (end - first) * size])
                width = size // _ELEMENT_BYTES[dtype]
                yield at, pb.Tensor(dtype=dtype, shape=[end - at, width], data=data)
                at = end
            first += count


_ELEMENT_BYTES = {pb.DTYPE_F32: 4, pb.DTYPE_BF16: 2, pb.DTYPE_F16: 2}
