"""Clients of all kinds at once, so that every figure of the page moves."""

from __future__ import annotations

import threading
from typing import Any, Callable, List

import attnd
import numpy as np

FLAGS = [
    "--model=builtin:apex1-small",
    "--device=cpu",
    "--kv_cache_bytes=192MiB",
    "--drain_seconds=30",
]


class Load:
    """Runs until `stop`; its sessions stay."""

    def __init__(self, address: str, sessions: int = 12):
        self._address = address
        self._stop = threading.Event()
        self._threads: List[threading.Thread] = []
        self._client = attnd.Client(address, affinity_key="worker-1", timeout=30)
        self.model = self._client.model()
        rng = np.random.default_rng(1)
        self._rows = rng.standard_normal((4096, self.model.d_model)).astype(np.float32)
        self._sessions = [
            self._client.create_session(
                session_id=f"chat-{i}", max_tokens=self.model.max_seq_len // 8 if i % 3 == 0 else 0
            )
            for i in range(sessions)
        ]
        # One waits in the middle of its prefix: its rows are held back.
        self._waiting = self._client.create_session(prefix_length=200, session_id="image-prefix")
        for work in (self._decode, self._prefill, self._stream, self._refused):
            self._threads.append(threading.Thread(target=self._run, args=(work,), daemon=True))
        for layer in range(len(self.model.layers)):
            self._waiting.prefill(layer, self._rows[:90])
            for i, session in enumerate(self._sessions):
                session.prefill(layer, self._rows[: 24 + 40 * i], output_rows="none")
        for thread in self._threads:
            thread.start()

    def _run(self, work: Callable[[Any], None]) -> None:
        with attnd.Client(self._address, affinity_key="worker-2", timeout=30) as client:
            while not self._stop.is_set():
                try:
                    work(client)
                except attnd.AttndError:
                    self._stop.wait(0.2)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        self._client.close()

    def _decode(self, client: Any) -> None:
        """A token of every session."""
        some = self._sessions[2:]
        for layer in range(len(self.model.layers)):
            client.decode(layer, some, self._rows[: len(some)])
        self._stop.wait(0.1)

    def _prefill(self, client: Any) -> None:
        """A session that comes and goes."""
        with client.create_session() as session:
            for layer in range(len(self.model.layers)):
                session.prefill(layer, self._rows[:256], output_rows="last")
            self._stop.wait(0.3)

    def _stream(self, client: Any) -> None:
        two = self._sessions[:2]
        with client.steps() as stream:
            for _ in range(20):
                for layer in range(len(self.model.layers)):
                    stream.submit_decode(layer, two, self._rows[:2]).result(30)
                if self._stop.wait(0.1):
                    return

    def _refused(self, client: Any) -> None:
        """More than there is room for, now and then."""
        self._stop.wait(1)
        held = []
        try:
            while not self._stop.is_set():
                held.append(client.create_session(max_tokens=self.model.max_seq_len))
        finally:
            for session in held:
                session.close()
