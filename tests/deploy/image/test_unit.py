"""deploy/attnd.service, as far as systemd can judge it without running it."""

import re
import subprocess

import pytest


@pytest.fixture(scope="module")
def unit(root):
    return root / "deploy/attnd.service"


def test_systemd_understands_every_line(unit, attnd, tmp_path):
    # With the built server in place of the installed one, which need not be here.
    text = unit.read_text()
    assert text.count("/usr/bin/attnd ") == 1
    copy = tmp_path / "attnd.service"
    copy.write_text(text.replace("/usr/bin/attnd ", f"{attnd} "))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", copy], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_its_exposure_is_the_one_stated(unit, root):
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
        capture_output=True,
        text=True,
    )
    found = re.search(r"Overall exposure level for attnd.service: ([0-9.]+)", done.stdout)
    assert found, done.stderr
    stated = re.search(
        r"systemd-analyze security` rates it ([0-9.]+\d)", (root / "README.md").read_text()
    )
    assert stated and found[1] == stated[1]


def test_a_server_has_time_to_drain(unit, stop_seconds):
    timeout = re.search(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.M)
    assert int(timeout[1]) > stop_seconds
