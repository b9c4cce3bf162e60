"""Runs an image's entry point without an engine: own namespaces, no capabilities, read-only root."""

import os
import pathlib
import select
import signal
import subprocess
import tempfile
import time

from .failure import Failure

# In the new namespaces; the mounts vanish with them. The last program is process 1, as in an engine.
START = r"""
set -e
root=$1 user=$2
shift 2
mount --bind "$root" "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t tmpfs -o size=64k,mode=755 tmpfs "$root/dev"
for device in null zero random urandom; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mount -o remount,bind,ro "$root"
ip link set lo up
cd /
exec chroot "$root" /usr/bin/setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups \
  --inh-caps=-all --bounding-set=-all --no-new-privs "$@"
"""


NAMESPACES = ["--mount", "--net", "--pid", "--ipc", "--uts"]


class Container:
    """The image's server, from its start to its end; a context manager."""

    def __init__(self, root, config, arguments):
        self.root = root
        self.config = config
        self.arguments = arguments  # what follows the image's name on an engine's command line
        self.environment = dict(pair.split("=", 1) for pair in config.get("Env") or [])
        self.process = None
        self.log = tempfile.TemporaryFile(mode="w+")  # what it says on stderr
        self.pid = None  # of process 1, as this machine numbers it

    def __enter__(self):
        entry = self.config["Entrypoint"] + self.arguments
        start = ["bash", "-c", START, "bash", str(self.root), self.config["User"], *entry]
        self.process = subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", *start],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        spoke = select.select([self.process.stdout], [], [], 60)[0]
        self.ready = self.process.stdout.readline().strip() if spoke else ""
        if not self.ready.startswith("attnd ready "):
            self.process.kill()
            self.process.wait()
            self.log.seek(0)
            raise Failure(f"the server did not start: {self.log.read()[-2000:].strip()}")
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.pid = int(children.read_text().split()[0])
        return self

    def __exit__(self, *_):
        self.process.kill()  # and with it process 1
        self.process.communicate()
        self.log.close()

    def run(self, *args):
        """Runs a program of the image beside the server, as its user."""
        user, group = self.config["User"].split(":")
        inside = ["--root", "--wd=/", "--setuid", user, "--setgid", group]
        return subprocess.run(
            ["nsenter", "--target", str(self.pid), *NAMESPACES, *inside, *args],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )

    def status(self, key):
        """A line of /proc/PID/status, as a list of words."""
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return line.split()[1:]
        raise Failure(f"/proc/{self.pid}/status has no {key}")

    def terminate(self):
        os.kill(self.pid, signal.SIGTERM)

    def exit_code(self, seconds):
        """The server's, within so many seconds."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"the server did not end within {seconds} s of SIGTERM") from None

    def alive(self):
        return self.process.poll() is None

    def wait_until(self, what, condition, seconds):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Failure(f"not within {seconds} s: {what}")
            time.sleep(0.1)
