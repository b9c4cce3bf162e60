"""Servers of the build tree as child processes, on free ports."""

import contextlib
import queue
import subprocess
import threading
import time

from .measure import BenchError

MEDIUM = """\
model:
  d_model: 2048
  n_layers: 2
  n_heads_q: 16
  n_heads_kv: 4
  d_head: 128
  d_kv_compressed: 256
  d_q_compressed: 384
  d_head_rope: 64
  max_seq_len: 65536
  rope_base: 500000
  rope_scaling: 4
attention:
  global_layer_freq: 2
  local_window: 2048
"""


class Server:
    def __init__(self, process, line, seconds):
        self.pid = process.pid
        self.start_seconds = seconds
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        self.address = words.get("grpc", line.strip())

    def rss(self):
        """Resident bytes."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise BenchError("no VmRSS")


@contextlib.contextmanager
def running(command, timeout=60):
    """The server that `command` starts, once it has printed its line."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = queue.Queue()
    threading.Thread(target=lambda: lines.put(process.stdout.readline()), daemon=True).start()
    try:
        try:
            line = lines.get(timeout=timeout)
        except queue.Empty:
            line = ""
        if not line:
            raise BenchError(f"{command[0]} did not start")
        yield Server(process, line, time.monotonic() - begin)
    finally:
        process.kill()
        process.wait()


def attnd(bench, *arguments):
    command = [str(bench.bin / "attnd"), "--listen=127.0.0.1:0", "--http=127.0.0.1:0"]
    if bench.isa:
        command.append(f"--isa={bench.isa}")
    return running(command + list(arguments))


def echo(bench):
    return running([str(bench.bin / "bench_echo_server")])
