"""numpy arrays to and from the wire's Tensor."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from ._proto import attnd_pb2 as pb

try:
    import ml_dtypes

    _BF16: Optional[np.dtype] = np.dtype(ml_dtypes.bfloat16)
except ImportError:  # optional: the extra `bf16`
    _BF16 = None

# Short name, numpy's name, wire's number; the only table of its kind.
_TABLE = (
    ("f32", "float32", pb.DTYPE_F32),
    ("bf16", "bfloat16", pb.DTYPE_BF16),
    ("f16", "float16", pb.DTYPE_F16),
    ("int8", "int8", pb.DTYPE_INT8),
    ("f8_e4m3", "float8_e4m3fn", pb.DTYPE_F8_E4M3),
)
_HIDDEN = ("f32", "bf16", "f16")  # the others are for caches only
_NAME_OF = {number: short for short, _, number in _TABLE}
_NUMBER_OF = {short: number for short, _, number in _TABLE}
_SHORT_OF = {name: short for short, full, _ in _TABLE for name in (short, full)}


def dtype_name(dtype: Any) -> str:
    """"f32", "bf16" or "f16" for a name, a numpy dtype or a scalar type; TypeError for others."""
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    short = _SHORT_OF.get(name)
    if short not in _HIDDEN:
        raise TypeError(f"dtype is {name}; expected float32, float16 or bfloat16")
    return short


def wire_dtype(dtype: Any) -> int:
    """The wire's number of a dtype; 0 (unspecified) for None."""
    return pb.DTYPE_UNSPECIFIED if dtype is None else _NUMBER_OF[dtype_name(dtype)]


def name_of_wire(number: int) -> str:
    """The short name of a wire dtype, "unspecified" for 0 and for numbers of a newer server."""
    return _NAME_OF.get(number, "unspecified")


def _bf16_bits(values: np.ndarray) -> np.ndarray:
    """float32 to bfloat16 bits (uint16), rounded to nearest even; a NaN stays a NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype("<u2")


def _widened(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _encode(array: np.ndarray, short: str) -> np.ndarray:
    if dtype_name(array.dtype) == short:
        return np.ascontiguousarray(array)
    if short == "bf16":
        return _bf16_bits(array.astype(np.float32))
    return np.ascontiguousarray(array.astype("<f4" if short == "f32" else "<f2"))


def to_tensor(array: np.ndarray, dtype: Any = None) -> pb.Tensor:
    """The Tensor of a 2-D array [rows, width] of float32, float16 or ml_dtypes.bfloat16.

    Rows that are not C-contiguous are copied. With `dtype` the values are converted first.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"hidden is {type(array).__name__}; expected a numpy.ndarray")
    if array.ndim != 2:
        raise ValueError(f"hidden has shape {list(array.shape)}; expected [rows, d_model]")
    if not array.dtype.isnative:
        raise TypeError("hidden is in the other byte order; expected the machine's own")
    short = dtype_name(array.dtype if dtype is None else dtype)
    data = _encode(array, short).tobytes()
    return pb.Tensor(dtype=_NUMBER_OF[short], shape=array.shape, data=data)


def from_tensor(tensor: pb.Tensor) -> np.ndarray:
    """The array of a Tensor, read-only and over the message's own bytes (no copy).

    A bf16 tensor is an array of ml_dtypes.bfloat16; where ml_dtypes is not installed its values
    are widened to float32, which is exact (and copies).
    """
    short = name_of_wire(tensor.dtype)
    if short not in _HIDDEN:
        raise ValueError(f"output has wire dtype {tensor.dtype}; expected f32, bf16 or f16")
    kind = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype("<u2")}[short]
    array = np.frombuffer(tensor.data, dtype=kind).reshape(tuple(tensor.shape))
    if short != "bf16":
        return array
    return _widened(array) if _BF16 is None else array.view(_BF16)
