"""A session of the blocking client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional

import numpy as np

from . import _calls, _retry
from ._proto import attnd_pb2 as pb
from ._recovery import Cause, Recovery, found
from ._session_state import SessionState
from .errors import AttndError, NotFound
from .types import DecodeResult, PrefillResult, SequenceStep, SessionInfo

if TYPE_CHECKING:
    from .client import Client


class Session(SessionState):
    """The caches of one sequence, a length per layer. `with` closes it on the server."""

    def __init__(self, client: "Client", info: SessionInfo):
        super().__init__(info)
        self._client = client

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._closed:
            return
        try:
            self.close()
        except AttndError:
            if kind is None:
                raise

    def prefill(
        self,
        layer: int,
        hidden: np.ndarray,
        position: Optional[int] = None,
        *,
        rewind: bool = False,
        output_rows: str = "all",
        output_dtype: Any = None,
        wire_dtype: Any = None,
        expected_length: int = 0,
        timeout: Optional[float] = None,
        retries: int = 0,
    ) -> PrefillResult:
        """Appends rows to a layer and answers their attention outputs.

        Args:
          hidden: [n, d_model], n ≥ 1; float32, float16 or ml_dtypes.bfloat16.
          position: absolute position of the first row; None: the layer's length.
          rewind: cuts the layer to `position` first.
          output_rows: "all", "last" or "none".
          output_dtype: "f32", "f16", "bf16" or a numpy dtype; None: that of the rows sent.
          wire_dtype: converts `hidden` before sending.
          expected_length: with rewind and > 0, the only length other than `position` at which
            the step is accepted.
          retries: how often to repeat the call when its outcome is unknown (UNAVAILABLE,
            DEADLINE_EXCEEDED), safely, by rewinding to the same position.

        Rows inside a bidirectional prefix are answered with the prefix's last row: `output` may
        be empty, or start before `position`.
        """
        options = dict(
            rewind=rewind,
            output_rows=output_rows,
            output_dtype=output_dtype,
            wire_dtype=wire_dtype,
            expected_length=expected_length,
        )
        return self._prefill(layer, position, hidden, options, timeout, retries)

    def _prefill(
        self,
        layer: int,
        position: Optional[int],
        hidden: np.ndarray,
        options: Dict[str, Any],
        timeout: Optional[float],
        retries: int,
    ) -> PrefillResult:
        start = self._position(layer, position)
        request = _calls.prefill_request(self.session_id, layer, start, hidden, **options)
        client, attempts = self._client, _retry.PrefillAttempts(request, retries)
        try:
            answer = client._attempt(client._stubs.attention.Prefill, request, timeout, attempts)
            result = _calls.prefill_result([answer], hidden.shape[1])
        except BaseException as error:
            self._failed(layer, error, attempts.repeated)
            raise
        self._set(layer, result.length)
        return result

    def decode(
        self,
        layer: int,
        hidden: np.ndarray,
        position: Optional[int] = None,
        *,
        rewind: bool = False,
        output_dtype: Any = None,
        wire_dtype: Any = None,
        expected_length: int = 0,
        timeout: Optional[float] = None,
        retries: int = 0,
    ) -> DecodeResult:
        """Appends one or more tokens, hidden [n, d_model]; see Client.decode. Raises on failure."""
        step = SequenceStep(self, len(hidden), position, rewind, expected_length)
        result = self._client.decode(
            layer,
            [step],
            hidden,
            output_dtype=output_dtype,
            wire_dtype=wire_dtype,
            timeout=timeout,
            retries=retries,
        )
        return result.raise_for_error()

    def rewind(self, position: int, *, timeout: Optional[float] = None) -> SessionInfo:
        """Cuts every layer longer than `position` to it, or changes nothing and raises."""
        try:
            return self._take(self._client.rewind_session(self._id, position, timeout=timeout))
        except BaseException as error:
            self._rewind_failed(error)
            raise

    def info(self, *, timeout: Optional[float] = None) -> SessionInfo:
        """The session as the server sees it; also refreshes `lengths`."""
        return self._take(self._client._info(self._id, timeout))

    def fork(
        self,
        position: int = 0,
        session_id: Optional[str] = None,
        max_tokens: int = 0,
        idle_ttl: Optional[float] = None,
        *,
        timeout: Optional[float] = None,
    ) -> "Session":
        """A session that continues from a copy of this one, independently of it.

        Args:
          position: the copy holds [0, position); 0: each layer as it is.
          session_id: None: an unguessable one, made by the server.
          max_tokens, idle_ttl: as in Client.create_session; the copy has its own.

        Takes next to no memory until they differ: pages are shared, and copied on write.
        """
        return self._client.fork_session(
            self._id, position, session_id, max_tokens, idle_ttl, timeout=timeout
        )

    def close(self, *, timeout: Optional[float] = None) -> int:
        """Ends the session; the bytes that it freed."""
        freed = self._client.close_session(self._id, timeout=timeout)
        self._closed = True
        return freed

    def _bring_back(self, cause: Cause, recovery: Recovery) -> pb.Session:
        """The session where calls go now; raises when it is not there."""
        self._check_open()
        return found(self._client, self._id, cause, recovery, replays=False)

    def _check_open(self) -> None:
        if self._closed:
            raise NotFound(f"session {self._id} was closed here", reason="SESSION_CLOSED")

    def _position(self, layer: int, position: Optional[int]) -> int:
        if position is not None:
            return position
        if self._known(layer) is None:
            self.info()
        known = self._known(layer)
        assert known is not None  # info() has just set every layer
        return known
