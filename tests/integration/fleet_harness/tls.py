"""The lines about TLS that the balancers' configurations have commented out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from . import configs


def certificates(folder: Path) -> None:
    """ca.pem, and a certificate and a key each for `balancer` and `me`: with Envoy's names, and in both/ with
    HAProxy's, which wants the two in one file."""
    for name in ("balancer", "me"):
        command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
        command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        command += ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (folder / "ca.pem").write_text((folder / "balancer.pem").read_text())
    for name in ("balancer", "me"):
        both = folder / "both" / f"{name}.pem"
        both.parent.mkdir(exist_ok=True)
        both.write_text((folder / f"{name}.pem").read_text() + (folder / f"{name}.key").read_text())


def envoy_text(path: Path, files: Path) -> str:
    """A file of deploy/envoy with its commented transport_socket in force; TLS files lie in `files`."""
    lines, within, count = [], False, 0
    for line in path.read_text().splitlines():
        comment = re.fullmatch(r"( +)# (.*)", line)
        if comment and comment[2].startswith("transport_socket:"):
            within, count = True, count + 1
        within = within and comment is not None
        lines.append(comment[1] + comment[2] if within and comment else line)
    if count != 1:
        raise ValueError(f"{path} has {count} commented transport_socket; expected 1")
    return "\n".join(lines).replace("/etc/envoy/tls", str(files))


def haproxy_text(files: Path) -> str:
    """haproxy.cfg with what its comments say about TLS."""
    text = configs.HAPROXY.read_text()
    (bind,) = re.findall(r"^  # TLS instead: (.*)$", text, re.M)
    said = text.partition("# TLS to the servers:")[2].replace("\n  # ", " ")
    servers = " ".join(re.findall(r"`([^`]*)`", said))
    text = text.replace("  bind :8470 proto h2\n", f"  {re.sub(r'[][]', '', bind)}\n", 1)
    text = text.replace("default-server proto h2 ", f"default-server {servers} ", 1)
    text = text.replace("/etc/haproxy/ca.pem", str(files / "ca.pem"))
    return text.replace("/etc/haproxy/", f"{files}/both/")
