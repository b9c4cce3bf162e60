"""Typed errors: one class a gRPC code, with the reason that the server gave."""

from __future__ import annotations

from typing import Dict, Optional, Type

import grpc

from . import _wire


class AttndError(Exception):
    """A call or a step that failed.

    Attributes:
      code: the grpc.StatusCode.
      reason: attnd's own word for it, such as "POSITION_MISMATCH"; "" when the status was made
        by gRPC itself (transport, a deadline, a cancel, a message over the limit).
      message: the text, with the field, the value and the limit.
      retry_after: seconds after which trying again may help; None where it would not.
    """

    code = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        retry_after: Optional[float] = None,
        code: Optional[grpc.StatusCode] = None,
    ):
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.retry_after = retry_after
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.code.name}{f' ({self.reason})' if self.reason else ''}: {self.message}"


class Cancelled(AttndError):
    code = grpc.StatusCode.CANCELLED


class InvalidArgument(AttndError):
    code = grpc.StatusCode.INVALID_ARGUMENT


class DeadlineExceeded(AttndError):
    code = grpc.StatusCode.DEADLINE_EXCEEDED


class NotFound(AttndError):
    code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(AttndError):
    code = grpc.StatusCode.ALREADY_EXISTS


class PermissionDenied(AttndError):
    code = grpc.StatusCode.PERMISSION_DENIED


class ResourceExhausted(AttndError):
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class FailedPrecondition(AttndError):
    code = grpc.StatusCode.FAILED_PRECONDITION


class Aborted(AttndError):
    code = grpc.StatusCode.ABORTED


class OutOfRange(AttndError):
    code = grpc.StatusCode.OUT_OF_RANGE


class Unimplemented(AttndError):
    code = grpc.StatusCode.UNIMPLEMENTED


class Internal(AttndError):
    code = grpc.StatusCode.INTERNAL


class Unavailable(AttndError):
    code = grpc.StatusCode.UNAVAILABLE


class DataLoss(AttndError):
    code = grpc.StatusCode.DATA_LOSS


class Unauthenticated(AttndError):
    code = grpc.StatusCode.UNAUTHENTICATED


def is_unsure(error: BaseException) -> bool:
    """Whether the call that ended so, by an interrupt for one, may have been carried out."""
    return not isinstance(error, AttndError) or error.reason in ("", "BAD_ANSWER")


_CLASSES: Dict[grpc.StatusCode, Type[AttndError]] = {
    cls.code: cls for cls in AttndError.__subclasses__()
}
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def make_error(
    code: grpc.StatusCode, message: str, reason: str = "", retry_after: Optional[float] = None
) -> AttndError:
    """The error of that code's class."""
    cls = _CLASSES.get(code, AttndError)
    return cls(message, reason=reason, retry_after=retry_after, code=code)


def from_rpc_error(error: grpc.RpcError) -> AttndError:
    """The typed error of a failed call, of the sync or the asyncio API."""
    trailers = {key: value for key, value in error.trailing_metadata() or ()}
    details = trailers.get("grpc-status-details-bin")
    return make_error(
        error.code(),
        error.details() or "",
        trailers.get("attnd-reason", ""),
        _wire.retry_delay(details) if details else None,
    )


def from_status(status) -> Optional[AttndError]:
    """The typed error of an in-band attnd.v1.Status; None when its code is 0."""
    if status.code == 0:
        return None
    retry_after = None
    if status.HasField("retry_after"):
        retry_after = status.retry_after.seconds + status.retry_after.nanos / 1e9
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    return make_error(code, status.message, status.reason, retry_after)
