"""Actions: malformed bytes, in calls and on bare connections. Nothing of it may harm anybody."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, List, Tuple

import grpc
import numpy as np

from attnd import tensors
from attnd._proto import attnd_pb2 as pb

from .calls import bounded
from .client import SoakClient

_SERVICE = "/attnd.v1."
_UNARY = (
    "AttentionService/Prefill",
    "AttentionService/Decode",
    "SessionService/CreateSession",
    "SessionService/GetSession",
    "SessionService/ListSessions",
    "SessionService/ForkSession",
    "SessionService/RewindSession",
    "SessionService/CloseSession",
    "ModelService/GetModel",
    "AdminService/GetStats",  # not Drain, which would end the soak
    "SessionService/NoSuchMethod",
)
_STREAMS = ("AttentionService/Steps", "SessionService/ImportSession")
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def garbage(c: SoakClient, most: int = 4000) -> bytes:
    return c.choose.randbytes(c.choose.randint(0, c.choose.choice((8, 200, most))))


def valid(c: SoakClient, method: str) -> bytes:
    """A well-formed request of the method, about a session that nobody has."""
    nobody = f"nobody-{c.name()}"
    hidden = np.zeros((3, c.setting.rules.d_model), np.float32)
    requests = {
        "Prefill": pb.PrefillRequest(session_id=nobody, layer=1, hidden=tensors.to_tensor(hidden)),
        "Decode": pb.DecodeRequest(
            sequences=[pb.SequenceStep(session_id=nobody, num_tokens=3)], hidden=tensors.to_tensor(hidden)
        ),
        "CreateSession": pb.CreateSessionRequest(session_id=nobody, prefix_length=-5, max_tokens=1 << 40),
        "RewindSession": pb.RewindSessionRequest(session_id=nobody, position=-1),
        "ForkSession": pb.ForkSessionRequest(session_id=nobody, position=1 << 62),
    }
    request = requests.get(method.split("/")[1], pb.GetSessionRequest(session_id=nobody))
    return request.SerializeToString()


def mutated(c: SoakClient, data: bytes) -> bytes:
    """The bytes with some flipped, and sometimes cut short or with others behind."""
    out = bytearray(data)
    for _ in range(c.choose.randint(0, 4)):
        if out:
            out[c.choose.randrange(min(len(out), 90))] ^= 1 << c.choose.randrange(8)
    cut = c.choose.choice((len(out), len(out), c.choose.randint(0, len(out))))
    return bytes(out[:cut]) + (garbage(c, 40) if c.choose.random() < 0.2 else b"")


async def malformed_call(c: SoakClient) -> None:
    """Any status will do but attnd's INTERNAL, which is a bug, and a connection that is lost."""
    c.ledger.count("malformed calls")
    channel = await c.raw_channel()
    if c.choose.random() < 0.3:
        method = c.choose.choice(_STREAMS)
        frames = [garbage(c) for _ in range(c.choose.randint(1, 4))]
        make = channel.stream_stream if "Steps" in method else channel.stream_unary
        call = make(_SERVICE + method)(iter(frames), timeout=60)
        done = _read_all(call) if "Steps" in method else _awaited(call)
    else:
        method = c.choose.choice(_UNARY)
        data = garbage(c) if c.choose.random() < 0.3 else mutated(c, valid(c, method))
        done = _awaited(channel.unary_unary(_SERVICE + method)(data, timeout=60))
    try:
        await bounded(done, f"malformed {method}", c.ledger)
    except grpc.RpcError as error:
        trailers = {key: value for key, value in error.trailing_metadata() or ()}
        reason = trailers.get("attnd-reason", "")
        code = error.code().name
        if reason == "INTERNAL" or code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
            text = f"malformed {method}: {code} {reason}: {error.details()}"
            c.ledger.find("unexpected refusal", text)
    await c.backoff()


async def _awaited(call: Any) -> Any:
    return await call


async def _read_all(call: Any) -> List[Any]:
    return [answer async for answer in call]


def scribble(c: SoakClient) -> Tuple[bytes, bool]:
    """What is written on a bare connection, and whether to the HTTP port."""
    frame = struct.pack(">I", c.choose.getrandbits(24))[1:] + garbage(c, 400)
    settings = b"\0\0\0\4\0\0\0\0\0"
    lines = b"GET /%s HTTP/1.1\r\nHost: x\r\n" % c.choose.choice((b"metrics", b"..%2f", b"%00", b"a" * 9000))
    return c.choose.choice((
        (garbage(c), False),
        (b"", False),
        (_PREFACE[: c.choose.randint(1, len(_PREFACE))], False),
        (_PREFACE + settings + frame, False),
        (_PREFACE + settings + garbage(c, 9) * 30, False),
        (lines + b"\r\n", False),
        (garbage(c), True),
        (lines, True),  # without its end
        (lines + b"Content-Length: -1\r\n\r\n", True),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n" + garbage(c), True),
    ))  # fmt: skip


async def malformed_connection(c: SoakClient) -> None:
    """Bytes that are no HTTP/2, or frames that make no sense, or half a request; then a reset or a close."""
    c.ledger.count("malformed connections")
    data, to_http = scribble(c)
    host, _, port = (c.setting.http if to_http else c.setting.address).rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
    except OSError as error:
        c.ledger.find("server lost", f"a connection was refused: {error}")
        return
    try:
        writer.write(data)
        await writer.drain()
        await asyncio.wait_for(reader.read(1 << 16), c.choose.uniform(0, 0.5))
    except (asyncio.TimeoutError, OSError):
        pass
    if c.choose.random() < 0.5:
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()
