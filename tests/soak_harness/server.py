"""The server that is soaked: small caches, short queues, short lives."""

from __future__ import annotations

import pathlib
import re
import subprocess
from typing import Any, Dict, List

from support import golden, reference, safetensors  # of tests/python
from support.server_process import ServerProcess

from .history import Rules

MODEL = "odd"  # four layers of both kinds, no size a power of two, 512 positions, a window of 7
MAX_REWIND = 16
MAX_MESSAGE_BYTES = 144 << 10  # 368 rows: an answer of a whole session does not fit
IDLE_TTL = 20.0  # seconds
STREAM_STEPS = 16
FLAGS = [
    "--kv_cache_bytes=12MiB",
    f"--max_rewind={MAX_REWIND}",
    f"--idle_ttl={IDLE_TTL:g}s",
    "--max_idle_ttl=1m",
    "--max_sessions=100",
    "--max_queue=16",
    "--max_batch_rows=64",
    "--prefill_chunk_rows=8",
    f"--max_stream_steps={STREAM_STEPS}",
    f"--max_message_bytes={MAX_MESSAGE_BYTES}",
    "--drain_seconds=0",
    "--threads=2",
]
# A small quarantine: freed memory that is kept for the checks would look like a leak.
ENVIRONMENT = {
    "ASAN_OPTIONS": "quarantine_size_mb=8:thread_local_quarantine_size_kb=64:malloc_context_size=12:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
GRACE = 40.0  # seconds for the exit after SIGTERM


class StartError(Exception):
    """There is nothing to soak."""


class Model:
    """The configuration and the weights of the model that is served."""

    def __init__(self) -> None:
        folder = golden.FOLDER / MODEL
        self.config: Dict[str, Any] = reference.read_config(folder / "model.yaml")
        self.weights = safetensors.read(folder / "model.safetensors")

    def rules(self) -> Rules:
        layers = range(self.config["n_layers"])
        return Rules(
            window=self.config["local_window"],
            max_rewind=MAX_REWIND,
            global_layers=tuple(reference.is_global(self.config, layer) for layer in layers),
            max_seq_len=self.config["max_seq_len"],
            max_message_bytes=MAX_MESSAGE_BYTES,
            d_model=self.config["d_model"],
        )


def sanitizer(build: pathlib.Path) -> str:
    """ "address", "thread" or "": what the tree was configured with."""
    cache = build / "CMakeCache.txt"
    match = re.search(r"^ATTND_SANITIZE:\w+=(.*)$", cache.read_text(), re.M) if cache.exists() else None
    return match.group(1) if match else ""


def binary(build: pathlib.Path) -> pathlib.Path:
    path = build / "bin" / "attnd"
    if not path.exists():
        raise StartError(f"{path} is missing: build it, or name another tree with --build")
    return path


def knows_eviction(build: pathlib.Path) -> bool:
    """Whether the server takes --evict=idle_lru."""
    command = [str(binary(build)), "--check", "--model=builtin:apex1-tiny", "--evict=idle_lru"]
    return subprocess.run(command, capture_output=True, timeout=60).returncode == 0


def start(build: pathlib.Path, flags: List[str]) -> ServerProcess:
    try:
        return ServerProcess.of_golden(
            MODEL, *FLAGS, *flags, binary=binary(build), environment=ENVIRONMENT
        )
    except RuntimeError as error:
        raise StartError(str(error)) from None
