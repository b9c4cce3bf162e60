"""Blocking work of the asyncio client."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Optional, TypeVar

_Result = TypeVar("_Result")


async def in_thread(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """As asyncio.to_thread; who is cancelled waits for the thread's end, and is cancelled then.

    Nothing is closed or removed under it so.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    cancelled: Optional[asyncio.CancelledError] = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return work.result()
    if not work.cancelled():
        work.exception()  # else asyncio complains that nobody has asked for it
    raise cancelled
