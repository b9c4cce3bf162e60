"""What calls take and answer: plain dataclasses."""

from __future__ import annotations

import dataclasses
import datetime
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple, Union

import numpy as np

from . import tensors
from ._proto import attnd_pb2 as pb
from .errors import AttndError

_KINDS = {pb.LAYER_KIND_GLOBAL_MLA: "global_mla", pb.LAYER_KIND_LOCAL_GQA: "local_gqa"}


def _copied(cls: Any, message: Any, **converted: Any) -> Any:
    """A `cls` whose fields are the message's fields of the same names, but for `converted`."""
    plain = {
        field.name: getattr(message, field.name)
        for field in dataclasses.fields(cls)
        if field.name not in converted
    }
    return cls(**plain, **converted)


@dataclass(frozen=True)
class ModelInfo:
    """What the server serves. Widths are in elements, bytes are per token and layer."""

    name: str
    fingerprint: str
    d_model: int
    num_heads_q: int
    num_heads_kv: int
    d_head: int
    d_head_rope: int
    d_kv_compressed: int
    d_q_compressed: int
    local_window: int
    max_seq_len: int
    layers: Tuple[str, ...]  # a layer each: "global_mla" or "local_gqa"
    weight_dtype: str  # "f32", "bf16", "f16"
    cache_dtype: str  # also "int8", "f8_e4m3"
    page_tokens: int
    global_bytes_per_token: int
    local_bytes_per_token: int
    max_rewind: int
    max_message_bytes: int
    max_batch_rows: int
    device: str
    version: str
    weights: str
    rope_base: float
    rope_scaling: float
    rope_attn_factor: bool
    hidden_dtypes: Tuple[str, ...]
    kv_cache_capacity_bytes: int

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @classmethod
    def from_proto(cls, message: pb.ModelInfo) -> "ModelInfo":
        return _copied(
            cls,
            message,
            layers=tuple(_KINDS.get(kind, "unspecified") for kind in message.layers),
            weight_dtype=tensors.name_of_wire(message.weight_dtype),
            cache_dtype=tensors.name_of_wire(message.cache_dtype),
            hidden_dtypes=tuple(map(tensors.name_of_wire, message.hidden_dtypes)),
        )


@dataclass(frozen=True)
class SessionInfo:
    """A session as the server sees it. Times are UTC."""

    session_id: str
    prefix_length: int
    max_tokens: int
    layer_lengths: Tuple[int, ...]  # the position of the next row, a value per layer
    rewind_floor: int
    cache_bytes: int
    reserved_bytes: int
    create_time: datetime.datetime
    expire_time: Optional[datetime.datetime]  # if it stays idle
    affinity_key: str

    @classmethod
    def from_proto(cls, message: pb.Session) -> "SessionInfo":
        utc = datetime.timezone.utc
        expires = message.HasField("expire_time")
        return _copied(
            cls,
            message,
            layer_lengths=tuple(message.layer_lengths),
            create_time=message.create_time.ToDatetime(tzinfo=utc),
            expire_time=message.expire_time.ToDatetime(tzinfo=utc) if expires else None,
        )


@dataclass(frozen=True)
class Stats:
    """One consistent moment of the server."""

    server_id: str
    kv_cache_capacity_bytes: int
    kv_cache_used_bytes: int
    kv_cache_reserved_bytes: int
    sessions: int
    queued_steps: int
    running_rows: int
    draining: bool

    @classmethod
    def from_proto(cls, message: pb.Stats) -> "Stats":
        return _copied(cls, message)


@dataclass(frozen=True)
class Timing:
    """Where the server's time went, for this step alone."""

    queue_ns: int
    compute_ns: int
    batch_rows: int

    @classmethod
    def from_proto(cls, message: pb.Timing) -> "Timing":
        return _copied(cls, message)


@dataclass(frozen=True)
class PrefillResult:
    """The answer to a prefill.

    Attributes:
      output: [m, d_model], read-only; m may be 0, and more than the rows sent when they
        completed a prefix.
      output_position: the absolute position of output's first row.
      length: the layer's length now, the position of the next row.
    """

    output: np.ndarray
    output_position: int
    length: int
    timing: Timing


@dataclass(frozen=True)
class SequenceResult:
    """One sequence's part of a decode; `error` is None when it was appended and answered."""

    output: np.ndarray  # [num_tokens, d_model], a view of DecodeResult.output; zero on error
    length: int
    error: Optional[AttndError]

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True)
class DecodeResult:
    """The answer to a decode: `output` is [sum of num_tokens, d_model], read-only."""

    results: List[SequenceResult]  # in the order of the sequences
    output: np.ndarray
    timing: Timing

    def raise_for_error(self) -> "DecodeResult":
        """Raises the first sequence's error, if any failed; else returns itself."""
        for result in self.results:
            if result.error is not None:
                raise result.error
        return self


@dataclass(frozen=True)
class SequenceStep:
    """One sequence's part of a decode, to be sent.

    Attributes:
      session: a Session, or the id of one (then `position` is needed).
      num_tokens: rows of `hidden` that are this session's; causal among themselves.
      position: absolute position of the first row; None: the layer's length as known here.
      rewind: cuts the layer to `position` first.
      expected_length: with rewind, the only other length at which the step is accepted.
    """

    session: Union[Any, str]
    num_tokens: int = 1
    position: Optional[int] = None
    rewind: bool = False
    expected_length: int = 0
