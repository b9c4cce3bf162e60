"""What both clients say to gRPC: channel options, metadata, stubs, deadlines."""

from __future__ import annotations

import math
import secrets
from typing import Any, List, Optional, Sequence, Tuple

from google.protobuf.duration_pb2 import Duration

from . import _wire
from ._proto import attnd_pb2_grpc as rpc

Metadata = Sequence[Tuple[str, str]]
Options = Sequence[Tuple[str, Any]]

# Of a channel on which the server can send next to nothing that is not read yet: a stream stands
# still in the server until its client reads. 5 bytes is the least that gRPC takes.
NARROW: Options = (("grpc.http2.lookahead_bytes", 5), ("grpc.http2.bdp_probe", 0))

_LONGEST = 315_576_000_000  # seconds of a google.protobuf.Duration

MAX_MESSAGE_BYTES = 256 << 20  # the server's default; gRPC's own would be 4 MiB for answers


def channel_options(max_message_bytes: int, extra: Optional[Options]) -> List[Tuple[str, Any]]:
    """Later entries win, so `extra` overrides."""
    merged = {
        "grpc.max_receive_message_length": max_message_bytes,
        "grpc.max_send_message_length": max_message_bytes,
        # Notices a dead peer within 50 s, also between calls. The server allows a ping each 5 s.
        "grpc.keepalive_time_ms": 30_000,
        "grpc.keepalive_timeout_ms": 20_000,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
        # gRPC 1.51 sometimes fails the first connect to a live server and then waits 1 s.
        "grpc.initial_reconnect_backoff_ms": 100,
        # What gRPC grants a connection to come about, TLS and all; its name says otherwise.
        "grpc.min_reconnect_backoff_ms": 5_000,
        "grpc.max_reconnect_backoff_ms": 5_000,
    }
    merged.update(extra or ())
    return list(merged.items())


def chosen_key(affinity_key: Optional[str]) -> str:
    """The key of a client that was given this one; None: a random one of 128 bits."""
    if affinity_key is None:
        return secrets.token_hex(16)
    if not (affinity_key.isascii() and affinity_key.isprintable()):
        raise ValueError(f"affinity_key is {affinity_key!r}; expected printable ASCII")
    return affinity_key


def call_metadata(affinity_key: str, extra: Optional[Metadata]) -> Metadata:
    key = [("attnd-session-key", affinity_key)] if affinity_key else []
    return tuple([*key, *(extra or ())])


def with_affinity_key(metadata: Metadata, affinity_key: str) -> Metadata:
    """The metadata with this key instead; as it is when the key is empty."""
    if not affinity_key:
        return metadata
    others = (entry for entry in metadata if entry[0] != "attnd-session-key")
    return (("attnd-session-key", affinity_key), *others)


def deadline(timeout: Optional[float], default: Optional[float]) -> Optional[float]:
    """Seconds for gRPC: None takes the client's default, math.inf means no deadline."""
    seconds = default if timeout is None else timeout
    return None if seconds is None or math.isinf(seconds) else seconds


def duration(seconds: Optional[float]) -> Optional[Duration]:
    """The Duration of so many seconds; None stays unset."""
    if seconds is None:
        return None
    if not abs(seconds) <= _LONGEST:
        raise ValueError(f"a duration is {seconds} s; expected at most {_LONGEST} s")
    message = Duration()
    message.FromNanoseconds(round(seconds * 1e9))
    return message


def step_timeout(seconds: Optional[float]) -> Optional[Duration]:
    """As `deadline`, for a step, where the default is none."""
    return duration(deadline(seconds, None))


class Stubs:
    """The services' stubs on one channel, sync or asyncio."""

    def __init__(self, channel: Any):
        self.attention = rpc.AttentionServiceStub(channel)
        self.sessions = rpc.SessionServiceStub(channel)
        self.model = rpc.ModelServiceStub(channel)
        self.admin = rpc.AdminServiceStub(channel)
        self.health = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=_wire.health_request,
            response_deserializer=_wire.health_status,
        )
