"""Asks which server answers, by the attnd-server of the answer itself."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Tuple

import grpc
from attnd import _channel
from attnd._proto import attnd_pb2 as pb

KEY = "attnd-session-key"
# Channels of one process with the same options share a connection; a worker has its own.
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
_AT_ONCE = 100  # calls under way; a connection has 128 streams


class Probe:
    """A connection to a balancer, for calls under any key."""

    def __init__(self, address: str):
        options = _channel.channel_options(1 << 20, OWN_CONNECTION)
        self._channel = grpc.insecure_channel(address, options)
        self._stubs = _channel.Stubs(self._channel)

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *_: Any) -> None:
        self._channel.close()

    def places(self, keys: Iterable[str]) -> Dict[str, str]:
        """The server that each key leads to now; "" where the call failed."""
        calls = [(key, self._stubs.admin.GetStats, pb.GetStatsRequest()) for key in keys]
        return {key: server or "" for (key, _, _), server in zip(calls, self._servers(calls))}

    def homes(self, sessions: Iterable[Tuple[str, str]]) -> Dict[str, Optional[str]]:
        """Of each (key, session id) the server that has the session under its key; None: it is lost."""
        calls = [
            (key, self._stubs.sessions.GetSession, pb.GetSessionRequest(session_id=session_id))
            for key, session_id in sessions
        ]
        return {call[2].session_id: server for call, server in zip(calls, self._servers(calls))}

    def _servers(self, calls: List[Tuple[str, Any, Any]]) -> List[Optional[str]]:
        found: List[Optional[str]] = []
        for begin in range(0, len(calls), _AT_ONCE):
            under_way = [
                # On a busy machine the connection may need more than its first 100 ms.
                method.future(request, timeout=30, metadata=((KEY, key),), wait_for_ready=True)
                for key, method, request in calls[begin : begin + _AT_ONCE]
            ]
            found += map(self._server, under_way)
        return found

    @staticmethod
    def _server(call: Any) -> Optional[str]:
        if call.exception() is not None:
            return None
        return dict(call.initial_metadata()).get("attnd-server")


def moved(address: str, sessions: Iterable[Tuple[str, str]], before: Dict[str, Optional[str]]) -> int:
    """How many of the sessions are not found where they were."""
    with Probe(address) as probe:
        after = probe.homes(sessions)
    return sum(server != before[session_id] for session_id, server in after.items())
