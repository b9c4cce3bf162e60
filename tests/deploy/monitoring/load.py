"""Load of every kind that the dashboard shows, on a real attnd that is far too small for it."""

from __future__ import annotations

import collections
import pathlib
import threading
from typing import Any, Callable, Counter, List

import attnd
import numpy as np

MODEL = "builtin:apex1-tiny"
# For a few seconds of load to meet every limit. 64 KiB are not quite 256 rows of 64 float32.
BUSY = ["--model", MODEL, "--kv_cache_bytes=4MiB", "--evict=idle_lru", "--max_sessions=200", "--max_queue=12",
        "--max_message_bytes=64KiB", "--drain_seconds=0", "--threads=1"]  # fmt: skip
DRAINED = ["--model", MODEL, "--kv_cache_bytes=4MiB", "--drain_seconds=0", "--threads=1"]
LOCAL, GLOBAL = 0, 5
ROWS = 64
EXPECTED = {"CACHE_FULL", "QUEUE_FULL", "TOO_MANY_SESSIONS", "MESSAGE_TOO_LARGE", "SESSION_MOVING"}
# What else may be refused on the way: sessions end under those who use them, positions move on.
ALLOWED = EXPECTED | {"SESSION_EVICTED", "SESSION_EXPIRED", "SESSION_UNKNOWN", "SESSION_CLOSED",
                      "POSITION_MISMATCH", "REWIND_TOO_FAR", "STEP_CANCELLED", "STEP_TIMEOUT", ""}  # fmt: skip


class Load:
    """Threads that call until `stop`; `reasons` counts the refusals, `fault` is what must not be."""

    def __init__(self, address: str, folder: pathlib.Path):
        self.reasons: Counter[str] = collections.Counter()
        self.fault = ""
        self._address = address
        self._folder = folder
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(turn,), daemon=True)
            for turn in (
                self._calls,
                self._calls,
                self._pipeline,
                self._pipeline,
                self._crowd,
                self._copies,
                self._limits,
            )
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            if thread.is_alive():
                self.fault = self.fault or "a call did not end within a minute"

    def _repeat(self, turn: Callable[[attnd.Client, Any], None]) -> None:
        rows = np.random.default_rng(threading.get_ident() % 2**32).standard_normal((ROWS, 64)).astype(np.float32)
        with attnd.Client(self._address, timeout=30, move_wait=0, arrival_wait=0) as client:
            while not self._stopping.is_set() and not self.fault:
                try:
                    turn(client, rows)
                except attnd.AttndError as error:
                    self._note(error)
                except Exception as error:  # of the load itself: told, not lost with its thread
                    self.fault = repr(error)

    def _note(self, error: attnd.AttndError) -> None:
        self.reasons[error.reason] += 1
        if error.reason not in ALLOWED or isinstance(error, attnd.Internal):
            self.fault = str(error)

    def _refused(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except attnd.AttndError as error:
            self._note(error)

    def _calls(self, client: attnd.Client, rows: Any) -> None:
        """One call after the other."""
        with client.create_session() as session:
            for layer in (LOCAL, GLOBAL):
                session.prefill(layer, rows)
                for at in range(8):
                    client.decode(layer, [session], rows[at : at + 1]).raise_for_error()
            session.info()
            session.rewind(ROWS)
            session.fork().close()

    def _pipeline(self, client: attnd.Client, rows: Any) -> None:
        """More steps on a stream than may wait."""
        with client.create_session(max_tokens=ROWS) as session, client.steps() as stream:
            futures: List[Any] = []
            for layer in (LOCAL, GLOBAL) * 8:
                futures.append(stream.submit_prefill(session, layer, rows[:32], 0, rewind=True))
                step = attnd.SequenceStep(session, 1, 0, rewind=True)
                futures.append(stream.submit_decode(layer, [step], rows[:1]))
            stream.cancel(futures[-1].step_id)
            for future in futures:
                self._refused(lambda future=future: future.result(30))

    def _crowd(self, client: attnd.Client, rows: Any) -> None:
        """Sessions that nobody closes: some expire, some are evicted, one waits for its prefix."""
        client.create_session(idle_ttl=1)
        client.create_session(prefix_length=ROWS, idle_ttl=5).prefill(LOCAL, rows[: ROWS - 1])
        for _ in range(8):
            session = client.create_session(idle_ttl=5)
            for layer in range(6):
                session.prefill(layer, rows)

    def _copies(self, client: attnd.Client, rows: Any) -> None:
        """Exports, imports, and a step on a session that moves."""
        path = self._folder / "session"
        with client.create_session() as session:
            session.prefill(GLOBAL, rows)
            client.export_session(session.session_id, path, move=True)
            self._refused(lambda: session.prefill(GLOBAL, rows))
        client.import_session(path).close()

    def _limits(self, client: attnd.Client, rows: Any) -> None:
        """What is refused whatever else goes on, and a call whose client does not wait."""
        self._fill(client, max_tokens=256)  # CACHE_FULL: reserved to the last page
        self._fill(client, max_tokens=0)  # TOO_MANY_SESSIONS
        self._refused(lambda: client.get_session("nobody"))
        with client.create_session() as session:
            many = np.zeros((256, 64), np.float16)  # fits into a message, its answer in float32 does not
            self._refused(lambda: session.prefill(LOCAL, many, output_dtype="f32"))
            self._refused(lambda: session.prefill(GLOBAL, rows, timeout=0.001))
        client.model(), client.stats(), list(client.list_sessions())

    def _fill(self, client: attnd.Client, max_tokens: int) -> None:
        """Sessions until one is refused."""
        held: List[attnd.Session] = []
        try:
            for _ in range(201):
                held.append(client.create_session(max_tokens=max_tokens))
        except attnd.AttndError as error:
            self._note(error)
        for session in held:
            self._refused(session.close)
