"""The few protobuf messages that are not attnd's own, read and written without their stubs.

google.rpc.Status and grpc.health.v1 would each cost a dependency for a handful of fields.
"""

from __future__ import annotations

from typing import Iterator, Optional, Tuple, Union

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("varint of more than 10 bytes")


def fields(data: bytes) -> Iterator[Tuple[int, Union[int, bytes]]]:
    """Yields (field number, value) of a serialized message; ValueError where it is malformed."""
    at = 0
    try:
        while at < len(data):
            key, at = _varint(data, at)
            kind = key & 7
            if kind == _VARINT:
                value: Union[int, bytes]
                value, at = _varint(data, at)
            else:
                size, at = {_FIXED64: (8, at), _FIXED32: (4, at)}.get(kind) or (
                    _varint(data, at) if kind == _BYTES else (-1, at)
                )
                if size < 0 or at + size > len(data):
                    raise ValueError(f"field {key >> 3} of wire type {kind} is cut or unknown")
                value, at = data[at : at + size], at + size
            yield key >> 3, value
    except IndexError:
        raise ValueError("message ends inside a varint") from None


def _seconds(duration: bytes) -> float:
    parts = dict(fields(duration))
    return int(parts.get(1, 0)) + int(parts.get(2, 0)) / 1e9


def retry_delay(status_details: bytes) -> Optional[float]:
    """Seconds of the RetryInfo in a serialized google.rpc.Status; None without one."""
    try:
        for number, detail in fields(status_details):
            if number != 3:
                continue
            packed = dict(fields(detail))
            if packed.get(1, b"").decode() == _RETRY_INFO:
                info = dict(fields(packed.get(2, b"")))
                return _seconds(info.get(1, b""))
    except (ValueError, TypeError, AttributeError):
        pass  # advice that cannot be read is no advice; the error itself is told all the same
    return None


def _length_prefixed(number: int, value: bytes) -> bytes:
    size, head = len(value), bytearray([number << 3 | _BYTES])
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + value


def health_request(service: str) -> bytes:
    """A serialized grpc.health.v1.HealthCheckRequest."""
    return _length_prefixed(1, service.encode()) if service else b""


def health_status(response: bytes) -> str:
    """The status in a serialized grpc.health.v1.HealthCheckResponse, by name."""
    names = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
    number = int(dict(fields(response)).get(1, 0))
    return names[number] if number < len(names) else "UNKNOWN"
