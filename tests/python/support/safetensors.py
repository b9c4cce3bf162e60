"""A reader of float32 safetensors files, enough for the golden cases."""

import json
import struct

import numpy as np


def read(path):
    """The tensors of a file by name, float32."""
    raw = path.read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", f"{path}: {name} is {entry['dtype']}, expected F32"
        start, end = (8 + size + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(raw[start:end], dtype="<f4").reshape(entry["shape"])
    return tensors
