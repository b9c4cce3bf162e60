"""The real attnd with a rendered flag file: its secrets are made here, its ports are free ones."""

from __future__ import annotations

import contextlib
import pathlib
import re
import subprocess

from chart import ROOT, Rendered

TOKEN = "s3cret"


def write_flag_file(rendered: Rendered, folder: pathlib.Path) -> pathlib.Path:
    """The flag file as mounted, but for paths, which are below `folder`, and addresses."""
    text = "\n".join(rendered.flags())
    text = text.replace("/etc/attnd", str(folder)).replace("/models", str(ROOT / "tests/golden/odd"))
    text = re.sub(r"(--listen|--http)=0\.0\.0\.0:\d+", r"\1=127.0.0.1:0", text)
    path = folder / "attnd.conf"
    path.write_text(text + "\n")
    return path


def make_secrets(folder: pathlib.Path) -> None:
    """What values.py names: a certificate for localhost and the pods with its authority, and the file of tokens."""
    tls = folder / "tls"
    tls.mkdir()
    (folder / "tokens").mkdir()
    (folder / "tokens/tokens").write_text(f"team {TOKEN}\n")
    (folder / "tokens/drain-token").write_text(TOKEN + "\n")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=tls, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=test authority")
    openssl("req", *curve, "-keyout", "tls.key", "-out", "tls.csr", "-subj", "/CN=localhost")
    (tls / "names").write_text(
        "subjectAltName=DNS:localhost,DNS:*.fleet-attnd-headless.attention.svc.example.internal\n"
    )
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "tls.csr", "-out", "tls.crt", *signed)


class Server:
    def __init__(self, process: subprocess.Popen, ready: dict[str, str]):
        self.process = process
        self.http = "http://" + ready["http"]
        self.grpc = ready["grpc"].replace("127.0.0.1", "localhost")

    def terminate(self) -> None:
        self.process.terminate()


@contextlib.contextmanager
def serve(attnd: pathlib.Path, flag_file: pathlib.Path):
    process = subprocess.Popen(
        [attnd, f"--flagfile={flag_file}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        assert line.startswith("attnd ready "), process.stderr.read()
        yield Server(process, dict(part.split("=", 1) for part in line.split()[2:]))
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        process.terminate()  # the second ends it at once
        process.communicate(timeout=20)
