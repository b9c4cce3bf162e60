"""Client workers: a key, a connection and a few sessions each, every answer judged."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Callable, Counter, Iterator, List, Sequence, Set

import attnd
import numpy as np

from .answers import PROMPT, ROWS, Answers
from .probe import OWN_CONNECTION
from .report import Report, eventually

# Makes a worker's session of its client.
OpenSession = Callable[[attnd.Client], Any]

PACE = 0.3  # seconds from one round of a worker to the next
BEFORE, AFTER = 5, 10  # rounds of every worker around what happens to a server


def plain(client: attnd.Client) -> Any:
    return client.create_session()


def replaying(client: attnd.Client) -> Any:
    """A session that the library makes anew when its server is lost."""
    return client.create_replaying_session()


@dataclass
class Tally:
    """What all workers of a scenario saw."""

    right: int = 0  # sequences of steps, answered bit for bit
    wrong: int = 0
    failed: int = 0
    longest: float = 0.0  # seconds of a call
    errors: Counter[str] = field(default_factory=collections.Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self, right: bool) -> None:
        with self._lock:
            self.right += right
            self.wrong += not right

    def fail(self, error: Exception, sequences: int = 1) -> None:
        text = str(error).partition("\n")[0]
        with self._lock:
            self.failed += sequences
            self.errors[text[:160]] += sequences

    def took(self, seconds: float) -> None:
        with self._lock:
            self.longest = max(self.longest, seconds)

    def tell(self, report: Report) -> None:
        """The counts that every scenario has."""
        report.expect_some("sequences of steps answered", self.right + self.wrong)
        report.expect("answers that differ in a bit", self.wrong, 0)
        report.expect("sequences of steps that failed", self.failed, 0)
        for text, count in self.errors.most_common(3):
            report.tell(f"  {text}", count)
        report.tell("longest call of a worker, seconds", round(self.longest, 2))


class Worker:
    """One key, one connection, and the sessions whose numbers it is given; unary calls."""

    def __init__(self, address: str, key: str, numbers: Sequence[int], answers: Answers, tally: Tally):
        self.address, self.key, self.numbers = address, key, list(numbers)
        self._answers, self._tally = answers, tally
        self.row = 0  # of every session and layer
        self.sessions: List[Any] = []
        self._failed: Set[int] = set()  # numbers that miss a row: no answer is that of the reference
        self.client = self._connect()

    def _connect(self) -> attnd.Client:
        return attnd.Client(
            self.address, affinity_key=self.key, timeout=60, options=list(OWN_CONNECTION)
        )

    def open(self, open_session: OpenSession) -> None:
        """Creates the sessions and sends their prompts."""
        for number in self.numbers:
            session = open_session(self.client)
            self.sessions.append(session)
            prompt = self._answers.hidden[number, :PROMPT]
            for layer in range(self._answers.layers):
                answer = session.prefill(layer, prompt)
                self._judge(layer, number, 0, answer.output)
        self.row = PROMPT

    def round(self) -> None:
        """A row more for every session: a Decode of them all for each layer."""
        hidden = self._answers.hidden[self.numbers, self.row]
        for layer in range(self._answers.layers):
            self._timed(lambda: self._decode(layer, hidden))
        self.row += 1

    def _decode(self, layer: int, hidden: np.ndarray) -> None:
        """Each third row takes the place of another, as after a draft that was not accepted."""
        drafted = self.row % 3 == 0
        if drafted:
            self._take_errors(self.client.decode(layer, self.sessions, -hidden))
        steps = [attnd.SequenceStep(one, 1, self.row, rewind=drafted) for one in self.sessions]
        self._take(layer, self.client.decode(layer, steps, hidden))

    def _take_errors(self, answer: attnd.DecodeResult) -> None:
        for number, one in zip(self.numbers, answer.results):
            if one.error is not None:
                self._fail(one.error, [number])

    def _timed(self, call: Callable[[], None]) -> None:
        begun = time.monotonic()
        try:
            call()
        except attnd.AttndError as error:
            self._fail(error, self.numbers)
        self._tally.took(time.monotonic() - begun)

    def _take(self, layer: int, answer: attnd.DecodeResult) -> None:
        self._take_errors(answer)
        for number, one in zip(self.numbers, answer.results):
            if one.error is None:
                self._judge(layer, number, self.row, one.output)

    def _judge(self, layer: int, number: int, row: int, output: np.ndarray) -> None:
        if number not in self._failed:
            self._tally.judge(self._answers.right(layer, number, row, output))

    def _fail(self, error: Exception, numbers: Sequence[int]) -> None:
        self._failed.update(numbers)
        self._tally.fail(error, len(numbers))

    def reconnect(self) -> None:
        """A new connection under the same key; the sessions are looked up by their ids."""
        self.client.close()
        self.client = self._connect()
        self.sessions = [self.client.get_session(one.session_id) for one in self.sessions]

    def close(self) -> None:
        self.client.close()


class StreamingWorker(Worker):
    """The same over one stream of Steps, which goes on elsewhere; a round's layers are under way at once."""

    def open(self, open_session: OpenSession) -> None:
        super().open(open_session)
        self._stream = self.client.steps(resume=True)

    def round(self) -> None:
        hidden = self._answers.hidden[self.numbers, self.row]

        def all_layers() -> None:
            layers = range(self._answers.layers)
            futures = [self._stream.submit_decode(layer, self.sessions, hidden) for layer in layers]
            for layer, future in zip(layers, futures):
                try:
                    self._take(layer, future.result(60))
                except attnd.AttndError as error:
                    self._fail(error, self.numbers)

        self._timed(all_layers)
        self.row += 1

    def close(self) -> None:
        self._stream.close()
        super().close()


class Crew:
    """Workers that work at the same time, each on a thread."""

    def __init__(self, workers: Sequence[Worker]):
        self.workers = list(workers)
        self._pool = ThreadPoolExecutor(len(self.workers))
        self._stop = threading.Event()

    def each(self, work: Callable[[Worker], Any]) -> None:
        """Does it for every worker, all at once; raises what one of them raised."""
        list(self._pool.map(work, self.workers))

    def rounds(self, count: int) -> None:
        self.each(lambda worker: [worker.round() for _ in range(count)])

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Rounds before, while and after the caller does something, until the sessions are full at most."""
        self._stop.clear()
        running = [self._pool.submit(self._work, worker) for worker in self.workers]
        try:
            self.await_rounds(BEFORE)
            yield
            self.await_rounds(AFTER)
        finally:
            self._stop.set()
        for one in running:
            one.result()

    def _work(self, worker: Worker) -> None:
        while not self._stop.is_set() and worker.row < ROWS:
            worker.round()
            self._stop.wait(PACE)

    def await_rounds(self, count: int) -> None:
        """Waits until every worker has done so many rounds more, however busy the machine is."""
        wanted = {worker: min(worker.row + count, ROWS) for worker in self.workers}
        done = eventually(lambda: all(worker.row >= row for worker, row in wanted.items()), 180)
        if done is None:
            raise RuntimeError(f"{count} rounds were not done in 180 s")

    def close(self) -> None:
        self._stop.set()
        self._pool.shutdown()
        for worker in self.workers:
            worker.close()


@contextlib.contextmanager
def crew_of(
    kinds: Sequence[Callable[..., Worker]],
    address: str,
    keys: int,
    each: int,
    answers: Answers,
    open_session: OpenSession,
    tally: Tally,
) -> Iterator[Crew]:
    """`keys` workers of `each` open sessions, of these kinds in turn."""
    workers = []
    for key in range(keys):
        numbers = range(key * each, (key + 1) * each)
        kind = kinds[key % len(kinds)]
        workers.append(kind(address, f"worker-{key}", numbers, answers, tally))
    crew = Crew(workers)
    try:
        crew.each(lambda worker: worker.open(open_session))
        yield crew
    finally:
        crew.close()


def ids(workers: Sequence[Worker]) -> List[tuple]:
    """(key, session id) of every session."""
    return [(worker.key, one.session_id) for worker in workers for one in worker.sessions]
