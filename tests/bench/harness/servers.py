"""Servers of the build tree as child processes, on free ports."""

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
import urllib.request

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
        self.http = words.get("http", "")

    def rss(self):
        """Resident bytes."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise BenchError("no VmRSS")

    def cpu_seconds(self):
        """Of all its threads, since the start."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def metric(self, name):
        """The sum of a metric's values, whatever their labels."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        values = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return sum(float(value) for key, value in values if key.split("{", 1)[0] == name)


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


@contextlib.contextmanager
def decoding(bench, server, sessions, history):
    """Sessions that decode meanwhile, on a connection of their own. Yields a dictionary which has the
    times of their steps in ms once that is over: p50, p99, max."""
    command = [str(bench.bin / "bench_load"), server.address, "decode", str(sessions), str(history)]
    times = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout.readline().strip() != "ready":
                raise BenchError("bench_load did not begin to decode")
            yield times
            printed, _ = process.communicate(timeout=60)  # ends its input
            if process.returncode != 0:
                raise BenchError(f"bench_load ended with {process.returncode}")
            times.update(json.loads(printed))
        finally:
            process.kill()
