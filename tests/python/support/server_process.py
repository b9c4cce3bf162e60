"""The real server as a child process, with its addresses read from the ready line."""

import os
import queue
import subprocess
import threading

from . import golden

BINARY = os.environ.get("ATTND_BIN", str(golden.ROOT / "build" / "bin" / "attnd"))


class ServerProcess:
    """Serves until `stop`; `ready` has the ready line's keys, `address` the gRPC one."""

    def __init__(self, *arguments, start_seconds=60, binary=BINARY, environment=None):
        command = [str(binary), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *arguments]
        self._log = []
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        first = queue.Queue()
        for stream, take in ((self._process.stdout, first.put), (self._process.stderr, self._keep)):
            threading.Thread(target=self._pump, args=(stream, take), daemon=True).start()
        try:
            line = first.get(timeout=start_seconds)
        except queue.Empty:
            line = ""
        if not line.startswith("attnd ready "):
            self._process.kill()
            log = "".join(self._log[-20:])
            raise RuntimeError(f"{' '.join(command)} was not ready: {line!r}\n{log}")
        self.ready = dict(part.split("=", 1) for part in line.split()[2:])
        self.address = self.ready["grpc"]

    @classmethod
    def of_golden(cls, model, *arguments, **options):
        folder = golden.FOLDER / model
        weights = str(folder / "model.safetensors")
        return cls("--model", str(folder / "model.yaml"), "--weights", weights, *arguments, **options)

    def _keep(self, line):
        self._log.append(line)

    @staticmethod
    def _pump(stream, take):
        for line in stream:
            take(line)
        take("")

    def log(self):
        return "".join(self._log)

    @property
    def pid(self):
        return self._process.pid

    @property
    def running(self):
        return self._process.poll() is None

    def finish(self, seconds):
        """Asks once and waits; the exit code, None (and killed) after so many seconds."""
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return None

    def stop(self):
        """Asks twice, because the first SIGTERM still serves for the drain time."""
        for _ in range(2):
            if self._process.poll() is None:
                self._process.terminate()
                try:
                    self._process.wait(0.2)
                except subprocess.TimeoutExpired:
                    pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
