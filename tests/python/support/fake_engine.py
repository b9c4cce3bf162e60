"""The wire contract's session rules over the float64 reference, for tests of the client.

Slow and small on purpose: a layer keeps every row it was given and computes all of them each
time. It has no memory budget, no batching and no eviction.
"""

import re
import threading

import grpc
import numpy as np

from attnd import tensors
from attnd._proto import attnd_pb2 as pb

from . import reference

MAX_REWIND = 64
Code = grpc.StatusCode


class Refusal(Exception):
    """An error with attnd's reason, as the server would make it."""

    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code, self.reason = code, reason


class Layer:
    def __init__(self, width):
        self.rows = np.zeros((0, width), np.float32)
        self.first = 0  # the oldest row that a real server would still hold
        self.last_start = 0


class Session:
    def __init__(self, request, session_id, config):
        self.id, self.request = session_id, request
        self.layers = [Layer(config["d_model"]) for _ in range(config["n_layers"])]


def to_array(tensor, width):
    """float32 [rows, width] of a Tensor, or BAD_TENSOR."""
    sizes = {pb.DTYPE_F32: 4, pb.DTYPE_F16: 2, pb.DTYPE_BF16: 2}
    if tensor.dtype not in sizes:
        raise Refusal(Code.INVALID_ARGUMENT, "BAD_TENSOR", f"hidden.dtype is {tensor.dtype}")
    shape = list(tensor.shape)
    if len(shape) != 2 or shape[0] < 1 or shape[1] != width:
        text = f"hidden.shape is {shape}; expected [n, {width}]"
        raise Refusal(Code.INVALID_ARGUMENT, "BAD_TENSOR", text)
    if len(tensor.data) != shape[0] * width * sizes[tensor.dtype]:
        text = f"hidden.data has {len(tensor.data)} bytes"
        raise Refusal(Code.INVALID_ARGUMENT, "BAD_TENSOR", text)
    return tensors.from_tensor(tensor).astype(np.float32)


class Engine:
    def __init__(self, config, weights):
        self.config, self.weights = config, weights
        self.sessions, self.closed = {}, set()
        self.moving = set()  # ids whose steps are refused
        self.lock = threading.Lock()

    def create(self, request):
        made = request.session_id or f"s{len(self.sessions) + len(self.closed)}-{id(request)}"
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", made):
            raise Refusal(Code.INVALID_ARGUMENT, "BAD_SESSION_ID", f"session_id is {made!r}")
        if made in self.sessions:
            raise Refusal(Code.ALREADY_EXISTS, "SESSION_EXISTS", f"session {made} exists")
        self.sessions[made] = Session(request, made, self.config)
        return self.sessions[made]

    def get(self, session_id):
        if session_id in self.sessions:
            return self.sessions[session_id]
        reason = "SESSION_CLOSED" if session_id in self.closed else "SESSION_UNKNOWN"
        raise Refusal(Code.NOT_FOUND, reason, f"session {session_id} is not here")

    def _get_still(self, session_id):
        """For what changes the session."""
        if session_id in self.moving:
            raise Refusal(Code.UNAVAILABLE, "SESSION_MOVING", f"session {session_id} moves")
        return self.get(session_id)

    def close(self, session_id):
        self.get(session_id)
        self.moving.discard(session_id)
        self.closed.add(session_id)
        del self.sessions[session_id]

    def rewind(self, session_id, position):
        session = self._get_still(session_id)
        longer = [layer for layer in session.layers if len(layer.rows) > position]
        for layer in longer:
            self._check_cut(session, session.layers.index(layer), position)
        for layer in longer:
            layer.rows = layer.rows[:position]
        return session

    def append(self, session_id, layer, step, x, decode, may_commit=lambda: None):
        """Appends x and answers (first answered position, rows [m, d], length)."""
        session = self._get_still(session_id)
        state, prefix = session.layers[layer], session.request.prefix_length
        start, end = self._check_position(session, layer, step), step.position + len(x)
        if decode and start < prefix:
            text = f"layer {layer} has {start} of {prefix} prefix rows"
            raise Refusal(Code.FAILED_PRECONDITION, "PREFIX_INCOMPLETE", text)
        self._check_limits(session, end)
        if not np.isfinite(x).all():
            raise Refusal(Code.INVALID_ARGUMENT, "NOT_FINITE", "hidden has a NaN or infinity")
        rows = np.concatenate([state.rows[:start], x])
        answered = 0 if start < prefix <= end else start
        if end < prefix:
            output = rows[:0]
        else:
            output = reference.forward(self.config, self.weights, layer, rows, prefix)[answered:]
        may_commit()
        state.rows, state.last_start = rows, start
        if not reference.is_global(self.config, layer) and end >= prefix:
            state.first = max(state.first, end - self.config["local_window"] - MAX_REWIND, 0)
        return answered, output, end

    def check_layer(self, layer):
        if layer >= self.config["n_layers"]:
            text = f"layer is {layer}; expected less than {self.config['n_layers']}"
            raise Refusal(Code.INVALID_ARGUMENT, "BAD_LAYER", text)

    def length(self, session_id, layer):
        session = self.sessions.get(session_id)
        return len(session.layers[layer].rows) if session else 0

    def _check_position(self, session, layer, step):
        length = len(session.layers[layer].rows)
        guard = step.rewind and step.expected_length > 0
        if guard and length not in (step.position, step.expected_length):
            text = f"length is {length}; expected_length is {step.expected_length}"
            raise Refusal(Code.FAILED_PRECONDITION, "POSITION_MISMATCH", text)
        if step.position > length or (step.position < length and not step.rewind):
            text = f"position is {step.position}; expected {length}"
            raise Refusal(Code.FAILED_PRECONDITION, "POSITION_MISMATCH", text)
        if step.position < length:
            self._check_cut(session, layer, step.position)
        return step.position

    def _check_cut(self, session, layer, position):
        state, prefix = session.layers[layer], session.request.prefix_length
        if position in (0, state.last_start):
            return
        if position < prefix <= len(state.rows):
            text = f"position {position} is inside the answered prefix of {prefix}"
            raise Refusal(Code.FAILED_PRECONDITION, "PREFIX_ANSWERED", text)
        if state.first and position < state.first + self.config["local_window"]:
            text = f"layer {layer} cannot be cut to {position}"
            raise Refusal(Code.FAILED_PRECONDITION, "REWIND_TOO_FAR", text)

    def _check_limits(self, session, end):
        if end > self.config["max_seq_len"]:
            raise Refusal(Code.OUT_OF_RANGE, "PAST_MAX_SEQ_LEN", f"{end} is past max_seq_len")
        if 0 < session.request.max_tokens < end:
            raise Refusal(Code.OUT_OF_RANGE, "PAST_MAX_TOKENS", f"{end} is past max_tokens")
