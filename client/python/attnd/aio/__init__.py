"""The asyncio client: the same calls as attnd.Client, awaited."""

from .client import AsyncClient
from .session import AsyncSession
from .steps import AsyncStepStream

__all__ = ["AsyncClient", "AsyncSession", "AsyncStepStream"]
