"""A thread that reads /metrics all the time and tells the ledger what is wrong."""

from __future__ import annotations

import http.client
import threading
import time
from typing import List, Optional, Tuple

from .exposition import Exposition, change, moment
from .ledger import Ledger

PERIOD = 0.1  # seconds between scrapes


def scrape(address: str) -> Exposition:
    """One scrape of "host:port"."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise ValueError(f"/metrics answered {answer.status}")
        return Exposition(text)
    finally:
        connection.close()


class Scraper:
    """`rss` has (seconds, bytes) of every scrape, `fullest` the highest usage ratio seen."""

    def __init__(self, address: str, ledger: Ledger):
        self._address = address
        self._ledger = ledger
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._last: Optional[Exposition] = None
        self.rss: List[Tuple[float, float]] = []
        self.fullest = 0.0
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(90)

    def judge(self, found: Exposition) -> None:
        """Takes the next scrape."""
        wrong = moment(found) + (change(self._last, found) if self._last else [])
        for text in wrong:
            self._ledger.find("inconsistent metrics", text)
        self._last = found
        self.rss.append((time.monotonic(), found.value("process_resident_memory_bytes")))
        self.fullest = max(self.fullest, found.value("attnd_kv_cache_usage_ratio"))
        self._ledger.count("scrapes")

    def _run(self) -> None:
        while not self._stop.wait(PERIOD):
            try:
                self.judge(scrape(self._address))
            except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
                self._ledger.find("inconsistent metrics", f"/metrics could not be read: {error!r}")
                self._stop.wait(1)
