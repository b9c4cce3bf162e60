"""Prometheus and Alertmanager as child processes, and what their HTTP interfaces answer."""

from __future__ import annotations

import json
import pathlib
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, Dict, List


class Failed(Exception):
    """What was to be shown did not happen; the text says what."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 30) -> Any:
    """What `condition` answers once that is true; Failed after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds:g} s")
        time.sleep(0.1)


class HttpProcess:
    """A program that serves HTTP on a port of its own; `url` is its root."""

    def __init__(self, name: str, folder: pathlib.Path, arguments: List[str], ready: str):
        self.name = name
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / f"{name}.log"
        command = [name, f"--web.listen-address=127.0.0.1:{port}", *arguments]
        self._process = subprocess.Popen(command, stdout=self._log.open("w"), stderr=subprocess.STDOUT)
        try:
            wait_for(f"{name} ready", lambda: self._ready(ready))
        except Failed:
            self.stop()
            raise

    def _ready(self, path: str) -> bool:
        if self._process.poll() is not None:
            raise Failed(f"{self.name} ended: {self.log()}")
        try:
            return urllib.request.urlopen(self.url + path, timeout=5).status == 200
        except OSError:
            return False

    def log(self) -> str:
        return "".join(self._log.read_text().splitlines(keepends=True)[-10:])

    def get(self, path: str, **parameters: str) -> Any:
        """The JSON that a path answers; Failed with its error."""
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        try:
            return json.load(urllib.request.urlopen(self.url + path + query, timeout=30))
        except urllib.error.HTTPError as error:
            raise Failed(f"{self.name}: {error.read().decode()}") from None

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Alertmanager(HttpProcess):
    def __init__(self, folder: pathlib.Path, config: pathlib.Path):
        data = folder / "alertmanager"
        arguments = [f"--config.file={config}", f"--storage.path={data}", "--cluster.listen-address="]
        super().__init__("prometheus-alertmanager", folder, arguments, "/-/ready")

    def receivers(self, alert: str, instance: str) -> List[str]:
        """To whom an alert of a replica goes now; none where it is not there."""
        labels = {"alertname": alert, "instance": instance}
        found = [one for one in self.get("/api/v2/alerts") if labels.items() <= one["labels"].items()]
        return [receiver["name"] for one in found for receiver in one["receivers"]]


class Prometheus(HttpProcess):
    def __init__(self, folder: pathlib.Path, config: pathlib.Path):
        data = folder / "prometheus"
        arguments = [f"--config.file={config}", f"--storage.tsdb.path={data}"]
        super().__init__("prometheus", folder, arguments, "/-/ready")

    def series(self, expression: str) -> List[Dict[str, Any]]:
        """An instant query's answer."""
        return self.get("/api/v1/query", query=expression)["data"]["result"]

    def values(self, expression: str) -> List[float]:
        return [float(one["value"][1]) for one in self.series(expression)]

    def history(self, expression: str, seconds: float) -> List[float]:
        """All values of all series in the last so many seconds, one a second."""
        now = time.time()
        found = self.get("/api/v1/query_range", query=expression, start=f"{now - seconds}", end=f"{now}", step="1")[
            "data"
        ]["result"]
        return [float(value) for one in found for _, value in one["values"]]

    def rules(self) -> List[Dict[str, Any]]:
        groups = self.get("/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]
