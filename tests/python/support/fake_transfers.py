"""Fork, export, import and moves of the fake server.

The data of a session are its layers' rows. `exporting` lets a test damage and cut what is sent.
"""

import time

import grpc
import numpy as np

from attnd import _xxh3
from attnd._proto import attnd_pb2 as pb

from .fake_engine import Code, Refusal, Session


def session_message(session):
    message = pb.Session(
        session_id=session.id,
        prefix_length=session.request.prefix_length,
        max_tokens=session.request.max_tokens,
        layer_lengths=[len(layer.rows) for layer in session.layers],
        affinity_key=session.request.affinity_key,
    )
    message.create_time.GetCurrentTime()
    return message


def refuse(context, refusal):
    """Ends a call as the server would."""
    context.set_trailing_metadata([("attnd-reason", refusal.reason)])
    context.abort(refusal.code, str(refusal))


def digest(header, data):
    whole = _xxh3.NumpyXxh3()
    whole.update(header.SerializeToString(deterministic=True))
    whole.update(data)
    return whole.digest()


class Exporting:
    """How sessions are exported."""

    chunk_bytes = 1000
    damage = False  # a bit of the data is another
    cut_after = None  # parts, after which the stream ends
    silent = False  # then nothing comes until the client cancels
    end = None  # a status code in the place of a good end
    lost = False  # that end comes from between: the server has sent all, once


class Transfers:
    """A part of FakeServer."""

    fingerprint = "xxh3:00112233445566778899aabbccddeeff"

    def __init__(self):
        self.exporting = Exporting()
        self.exports = 0

    def ForkSession(self, request, context):
        return self._answer(context, self._fork, request)

    def _fork(self, request):
        parent = self.engine.get(request.session_id)
        made = request.new_session_id or f"fork-{id(request)}"
        fork = Session(pb.CreateSessionRequest(), made, self.engine.config)
        fork.request.CopyFrom(parent.request)
        fork.request.max_tokens = request.max_tokens
        for layer, old in zip(fork.layers, parent.layers):
            end = request.position or len(old.rows)
            if end > len(old.rows):
                raise Refusal(Code.FAILED_PRECONDITION, "POSITION_MISMATCH", f"{end} is too far")
            layer.rows, layer.first, layer.last_start = old.rows[:end], old.first, old.last_start
        return session_message(self._add(fork))

    def _add(self, session):
        if session.id in self.engine.sessions:
            raise Refusal(Code.ALREADY_EXISTS, "SESSION_EXISTS", f"session {session.id} exists")
        self.engine.sessions[session.id] = session
        return session

    def _session_parts(self, session):
        data = b"".join(layer.rows.astype("<f4").tobytes() for layer in session.layers)
        header = pb.SessionHeader(
            format_version=1,
            model_fingerprint=self.fingerprint,
            prefix_length=session.request.prefix_length,
            layer_lengths=[len(layer.rows) for layer in session.layers],
            first_kept=[layer.first for layer in session.layers],
            last_step_start=[layer.last_start for layer in session.layers],
            max_tokens=session.request.max_tokens,
            affinity_key=session.request.affinity_key,
            session_id=session.id,
            data_bytes=len(data),
        )
        yield pb.SessionChunk(header=header)
        sent = bytearray(data)
        if self.exporting.damage:
            sent[len(sent) // 2] ^= 1
        for start in range(0, len(sent), self.exporting.chunk_bytes):
            yield pb.SessionChunk(data=bytes(sent[start : start + self.exporting.chunk_bytes]))
        yield pb.SessionChunk(digest=digest(header, data))

    def ExportSession(self, request, context):
        how = self.exporting

        def begin():
            self.exports += 1
            session = self.engine.get(request.session_id)
            if request.move:
                self.engine.moving.add(session.id)
            return list(self._session_parts(session))

        parts = self._answer(context, begin)
        if request.move:
            context.add_callback(lambda: self._ended(request.session_id, context))
        for part in parts[: how.cut_after]:
            yield pb.ExportSessionResponse(chunk=part)
        while how.silent and context.is_active():
            time.sleep(0.01)
        if how.end is not None:
            if how.lost:
                self.sent_all, self.exporting = context, Exporting()
            context.abort(how.end, "the stream broke")
        self.sent_all = context

    def _ended(self, session_id, context):
        """A move whose stream was cancelled is over; one that was sent whole waits for Close."""
        if getattr(self, "sent_all", None) is not context:
            self.engine.moving.discard(session_id)

    def ImportSession(self, requests, context):
        try:
            requests = list(requests)
        except grpc.RpcError:
            return pb.Session()  # cancelled: nothing is left
        return self._answer(context, self._import, requests)

    def _import(self, requests):
        chunks = [request.chunk for request in requests]
        if not chunks or not chunks[-1].digest:
            raise Refusal(Code.DATA_LOSS, "TRUNCATED", "the stream ended before the digest")
        header, data = chunks[0].header, b"".join(chunk.data for chunk in chunks)
        if header.model_fingerprint != self.fingerprint:
            raise Refusal(Code.FAILED_PRECONDITION, "MODEL_MISMATCH", "another model")
        if chunks[-1].digest != digest(header, data):
            raise Refusal(Code.DATA_LOSS, "BAD_DIGEST", "another digest")
        request = pb.CreateSessionRequest(
            prefix_length=header.prefix_length,
            max_tokens=header.max_tokens,
            affinity_key=header.affinity_key,
        )
        made = requests[0].session_id or header.session_id
        session = Session(request, made, self.engine.config)
        rows = np.frombuffer(data, "<f4").reshape(-1, self.engine.config["d_model"])
        ends = np.cumsum(header.layer_lengths)
        for i, layer in enumerate(session.layers):
            layer.rows = rows[ends[i] - header.layer_lengths[i] : ends[i]]
            layer.first, layer.last_start = header.first_kept[i], header.last_step_start[i]
        return session_message(self._add(session))
