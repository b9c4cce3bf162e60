"""Calls of a ReplayingSession, over the loss of servers and of answers."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Optional

from ._proto import attnd_pb2 as pb
from ._recovery import Recovery
from .errors import AttndError, NotFound, is_unsure


def make(session: Any, made: Any, method: Any, request: Any, timeout: Optional[float]) -> pb.Session:
    """`made`, by a fork of `session`, or by a Create where it is the session itself.

    Once it may have been made without our knowing, it is made under another id.
    """
    try:
        return _make(session, made, method, request, timeout)
    except BaseException as error:
        with contextlib.suppress(Exception):
            made._abandon(is_unsure(error))
        if made is not session:
            session._names.adopt(made._names.left)
        raise


def _make(session: Any, made: Any, method: Any, request: Any, timeout: Optional[float]) -> Any:
    client = session._client
    recovery = Recovery(client._recovery_timeout)
    while True:
        request.session_id = session._id
        if made is not session:
            request.new_session_id = made._id
        try:
            return client._once(method, request, timeout)
        except AttndError as error:
            cause = recovery.take(error)
            recovery.pause(error)
            if not error.reason:
                made._rename(made._names.another())
        if made is not session:
            session._bring_back(cause, recovery)
        made._close_left()  # what takes memory there, and perhaps the last session's place


def mended(
    session: Any,
    method: Any,
    request: Any,
    timeout: Optional[float],
    recovery: Recovery,
    done: Callable[[Any], None],
) -> Any:
    """The answer of a call that can be repeated; `done` takes it, and what it led to, over."""
    while True:
        request.session_id = session._id
        try:
            answer = session._client._once(method, request, timeout)
        except AttndError as error:
            cause = recovery.take(error)
            recovery.pause(error)
        else:
            with session._lock:
                if request.session_id == session._id:
                    done(answer)
                    return answer
            continue  # it was made anew meanwhile
        session._bring_back(cause, recovery)


def close(session: Any, timeout: Optional[float]) -> int:
    """The bytes that it freed; 0 where another server answers, as the session is not there."""
    client = session._client
    recovery = Recovery(client._recovery_timeout)
    request = pb.CloseSessionRequest(session_id=session._id)
    while True:
        try:
            return client._call(client._stubs.sessions.CloseSession, request, timeout).freed_bytes
        except NotFound:
            return 0
        except AttndError as error:
            recovery.take(error)
            recovery.pause(error)
