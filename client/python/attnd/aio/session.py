"""A session of the asyncio client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Sequence

import numpy as np

from .. import _calls, _retry
from .._session_state import SessionState
from ..errors import AttndError
from ..types import DecodeResult, PrefillResult, SequenceStep, SessionInfo

if TYPE_CHECKING:
    from .client import AsyncClient


class AsyncSession(SessionState):
    """The caches of one sequence, a length per layer. `async with` closes it on the server."""

    def __init__(self, client: "AsyncClient", info: SessionInfo):
        super().__init__(info)
        self._client = client

    async def __aenter__(self) -> "AsyncSession":
        return self

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        if self._closed:
            return
        try:
            await self.close()
        except AttndError:
            if kind is None:
                raise

    async def prefill(
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
        """Appends rows to a layer and answers their outputs; arguments as Session.prefill."""
        request = _calls.prefill_request(
            self.session_id,
            layer,
            await self._position(layer, position),
            hidden,
            rewind=rewind,
            output_rows=output_rows,
            output_dtype=output_dtype,
            wire_dtype=wire_dtype,
            expected_length=expected_length,
        )
        client, attempts = self._client, _retry.PrefillAttempts(request, retries)
        try:
            method = client._stubs.attention.Prefill
            answer = await client._attempt(method, request, timeout, attempts)
            result = _calls.prefill_result([answer], hidden.shape[1])
        except BaseException as error:
            self._failed(layer, error, attempts.repeated)
            raise
        self._set(layer, result.length)
        return result

    async def decode(
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
        result = await self._client.decode(
            layer,
            [step],
            hidden,
            output_dtype=output_dtype,
            wire_dtype=wire_dtype,
            timeout=timeout,
            retries=retries,
        )
        return result.raise_for_error()

    async def rewind(self, position: int, *, timeout: Optional[float] = None) -> SessionInfo:
        """Cuts every layer longer than `position` to it, or changes nothing and raises."""
        try:
            info = await self._client.rewind_session(self._id, position, timeout=timeout)
        except BaseException as error:
            self._rewind_failed(error)
            raise
        return self._take(info)

    async def info(self, *, timeout: Optional[float] = None) -> SessionInfo:
        """The session as the server sees it; also refreshes `lengths`."""
        return self._take(await self._client._info(self._id, timeout))

    async def fork(
        self,
        position: int = 0,
        session_id: Optional[str] = None,
        max_tokens: int = 0,
        idle_ttl: Optional[float] = None,
        *,
        timeout: Optional[float] = None,
    ) -> "AsyncSession":
        """A copy that continues on its own; arguments as Session.fork."""
        return await self._client.fork_session(
            self._id, position, session_id, max_tokens, idle_ttl, timeout=timeout
        )

    async def close(self, *, timeout: Optional[float] = None) -> int:
        """Ends the session; the bytes that it freed."""
        freed = await self._client.close_session(self._id, timeout=timeout)
        self._closed = True
        return freed

    async def _position(self, layer: int, position: Optional[int]) -> int:
        if position is not None:
            return position
        if self._known(layer) is None:
            await self.info()
        known = self._known(layer)
        assert known is not None  # info() has just set every layer
        return known


async def positions_of(layer: int, steps: Sequence[SequenceStep]) -> List[int]:
    """Where each step starts; asks the server for lengths that are not known here."""
    return [
        await step.session._position(layer, None) if step.position is None else step.position
        for step in steps
    ]
