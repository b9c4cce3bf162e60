"""Client of attnd, attention as a service: numpy in, numpy out.

    with attnd.Client("127.0.0.1:8470") as client, client.create_session() as session:
        answer = session.prefill(0, hidden)          # hidden: [n, d_model] float32
        answer.output                                # [n, d_model]

Every failure is an AttndError with `code`, `reason`, `message` and `retry_after`.
"""

try:
    from . import _proto  # noqa: F401
except ImportError:
    raise ImportError(
        "attnd's gRPC stubs are missing: install the package with pip, or run generate_stubs.py "
        "in client/python"
    ) from None

from ._version import __version__
from .aio import AsyncClient, AsyncSession, AsyncStepStream
from .client import Client
from .errors import (
    Aborted,
    AlreadyExists,
    AttndError,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from .replaying import ReplayingSession
from .resuming import ResumingStepStream
from .session import Session
from .steps import StepFuture, StepStream
from .types import (
    DecodeResult,
    ModelInfo,
    PrefillResult,
    SequenceResult,
    SequenceStep,
    SessionInfo,
    Stats,
    Timing,
)

__all__ = [
    "Aborted",
    "AlreadyExists",
    "AsyncClient",
    "AsyncSession",
    "AsyncStepStream",
    "AttndError",
    "Cancelled",
    "Client",
    "DataLoss",
    "DeadlineExceeded",
    "DecodeResult",
    "FailedPrecondition",
    "Internal",
    "InvalidArgument",
    "ModelInfo",
    "NotFound",
    "OutOfRange",
    "PermissionDenied",
    "PrefillResult",
    "ReplayingSession",
    "ResourceExhausted",
    "ResumingStepStream",
    "SequenceResult",
    "SequenceStep",
    "Session",
    "SessionInfo",
    "Stats",
    "StepFuture",
    "StepStream",
    "Timing",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "__version__",
]
