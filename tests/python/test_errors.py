"""Statuses to typed errors, and the hand-read messages behind retry_after and health."""

import grpc
import pytest

import attnd
from attnd import _wire, errors
from attnd._proto import attnd_pb2 as pb

# google.rpc.Status{code: 8, message: "full", details: [RetryInfo{retry_delay: 1.25 s}]}
TYPE = b"type.googleapis.com/google.rpc.RetryInfo"
DELAY = b"\x0a\x07\x08\x01\x10\x80\xe5\x9a\x77"
ANY = b"\x0a" + bytes([len(TYPE)]) + TYPE + b"\x12" + bytes([len(DELAY)]) + DELAY
DETAILS = b"\x08\x08\x12\x04full\x1a" + bytes([len(ANY)]) + ANY


class Failed(grpc.RpcError):
    def __init__(self, code, trailers):
        self._code, self._trailers = code, trailers

    def code(self):
        return self._code

    def details(self):
        return "the message"

    def trailing_metadata(self):
        return self._trailers


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.value[0]])
def test_every_code_has_its_error(code):
    error = errors.from_rpc_error(Failed(code, [("attnd-reason", "WHY")]))
    assert isinstance(error, attnd.AttndError)
    assert (error.code, error.reason, error.message) == (code, "WHY", "the message")
    assert str(error) == f"{code.name} (WHY): the message"
    if code != grpc.StatusCode.UNKNOWN:
        name = code.name.title().replace("_", "")
        assert type(error) is getattr(attnd, name)


def test_a_status_of_grpc_itself_has_no_reason():
    error = errors.from_rpc_error(Failed(grpc.StatusCode.UNAVAILABLE, None))
    assert (error.reason, error.retry_after) == ("", None)
    assert str(error) == "UNAVAILABLE: the message"


def test_retry_after_is_read_from_the_status_details():
    trailers = [("attnd-reason", "CACHE_FULL"), ("grpc-status-details-bin", DETAILS)]
    error = errors.from_rpc_error(Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, trailers))
    assert isinstance(error, attnd.ResourceExhausted)
    assert error.retry_after == 1.25


def test_retry_after_of_zero_is_not_none():
    any_ = b"\x0a" + bytes([len(TYPE)]) + TYPE + b"\x12\x02\x0a\x00"
    assert _wire.retry_delay(b"\x1a" + bytes([len(any_)]) + any_) == 0.0


def test_details_cut_anywhere_never_raise():
    for size in range(len(DETAILS)):
        assert _wire.retry_delay(DETAILS[:size]) is None
    for garbage in (b"\xff" * 20, b"\x1a\x05\x0a\x03abc", b"\x18\x05", b"\x1b"):
        assert _wire.retry_delay(garbage) is None


def test_other_details_are_passed_over():
    other = b"\x0a\x03foo\x12\x01x"
    assert _wire.retry_delay(b"\x1a" + bytes([len(other)]) + other + DETAILS) == 1.25


def test_in_band_status():
    assert errors.from_status(pb.Status()) is None
    status = pb.Status(code=9, message="m", reason="POSITION_MISMATCH")
    status.retry_after.FromMilliseconds(250)
    error = errors.from_status(status)
    assert isinstance(error, attnd.FailedPrecondition)
    assert (error.reason, error.retry_after) == ("POSITION_MISMATCH", 0.25)
    assert errors.from_status(pb.Status(code=77)).code == grpc.StatusCode.UNKNOWN


def test_health_messages():
    assert _wire.health_request("") == b""
    assert _wire.health_request("a" * 200) == b"\x0a\xc8\x01" + b"a" * 200
    statuses = [_wire.health_status(data) for data in (b"", b"\x08\x01", b"\x08\x02", b"\x08\x09")]
    assert statuses == ["UNKNOWN", "SERVING", "NOT_SERVING", "UNKNOWN"]
