"""TLS, client certificates and bearer tokens: the real server, the Python client and attnctl."""

import json
import subprocess
from pathlib import Path

import grpc
import numpy as np
import pytest

import attnd
from support import server_process
from support.server_process import ServerProcess

ATTNCTL = Path(server_process.BINARY).with_name("attnctl")


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def make_certificate(folder, name, authority):
    """NAME.pem and NAME.key for localhost, signed by the authority's files."""
    key, request, chain = (folder / f"{name}{end}" for end in (".key", ".csr", ".pem"))
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    names = folder / f"{name}.ext"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", request, "-out", chain, "-CA", f"{authority}.pem", "-CAkey",
            f"{authority}.key", "-CAcreateserial", "-days", 2, "-extfile", names)  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    for authority in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-subj", f"/CN={authority}",
                "-keyout", folder / f"{authority}.key", "-out", folder / f"{authority}.pem")  # fmt: skip
    for name in ("server", "client"):
        make_certificate(folder, name, folder / "ca")
    (folder / "tokens").write_text("red red-secret\nblue blue-secret\n")
    (folder / "red").write_text("red-secret\n")
    (folder / "blue").write_text("blue-secret\n")
    (folder / "wrong").write_text("green-secret\n")
    return folder


@pytest.fixture(scope="module")
def secure(files):
    server = ServerProcess(
        "--model", "builtin:apex1-tiny", "--tls_cert", str(files / "server.pem"),
        "--tls_key", str(files / "server.key"), "--tls_client_ca", str(files / "ca.pem"),
        "--auth_tokens_file", str(files / "tokens"),
    )  # fmt: skip
    yield server
    server.stop()


def credentials(files, authority="ca"):
    read = [(files / name).read_bytes() for name in (f"{authority}.pem", "client.key", "client.pem")]
    return grpc.ssl_channel_credentials(*read)


def connect(secure, files, token, **options):
    metadata = [("authorization", f"Bearer {token}")] if token else None
    options = {"credentials": credentials(files), "metadata": metadata, "timeout": 20, **options}
    return attnd.Client(secure.address, **options)


def attnctl(secure, *arguments):
    command = [str(ATTNCTL), *arguments, "--target", secure.address, "--connect_ms", "1500"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def with_files(files, token, authority="ca"):
    return [
        "--tls_ca", str(files / f"{authority}.pem"), "--tls_cert", str(files / "client.pem"),
        "--tls_key", str(files / "client.key"), "--auth_token_file", str(files / token),
    ]  # fmt: skip


def test_a_tenant_is_served_and_sees_its_own_sessions_alone(secure, files):
    with connect(secure, files, "red-secret") as red, connect(secure, files, "blue-secret") as blue:
        session = red.create_session(session_id="mine")
        answer = session.prefill(0, np.ones((3, red.model().d_model), np.float32))
        assert np.isfinite(answer.output).all()
        with pytest.raises(attnd.AttndError) as refused:
            blue.get_session("mine")
        assert refused.value.reason == "SESSION_UNKNOWN"
        for token, expected in (("red", ["mine"]), ("blue", [])):
            listed = attnctl(secure, "sessions", "--json", *with_files(files, token))
            assert listed.returncode == 0, listed.stderr
            names = [each["session_id"] for each in json.loads(listed.stdout)["sessions"]]
            assert names == expected
        session.close()


@pytest.mark.parametrize("token", ["green-secret", "", None])
def test_a_wrong_token_is_refused_with_its_reason(secure, files, token):
    with connect(secure, files, token) as client, pytest.raises(attnd.AttndError) as refused:
        client.model()
    assert refused.value.reason == "BAD_CREDENTIALS"
    assert refused.value.code == grpc.StatusCode.UNAUTHENTICATED


def test_attnctl_tells_why_it_is_refused(secure, files):
    refused = attnctl(secure, "info", *with_files(files, "wrong"))
    assert refused.returncode == 1
    assert "BAD_CREDENTIALS" in refused.stderr and refused.stderr.count("\n") == 1
    untrusted = attnctl(secure, "info", *with_files(files, "red", authority="other"))
    assert untrusted.returncode == 1 and "TLS" in untrusted.stderr
    plain = attnctl(secure, "info")
    assert plain.returncode == 1 and plain.stderr.count("\n") == 1


def test_a_client_without_certificate_or_with_plain_text_is_not_served(secure, files):
    half = grpc.ssl_channel_credentials((files / "ca.pem").read_bytes())
    for kind in (half, None):
        with connect(secure, files, "red-secret", credentials=kind, connect_timeout=1.5) as client:
            with pytest.raises(attnd.AttndError) as refused:
                client.model()
            assert refused.value.code == grpc.StatusCode.UNAVAILABLE
    with connect(secure, files, "red-secret") as client:
        assert client.model().num_layers == 6


@pytest.mark.parametrize("flag", ["tls_ca", "auth_token_file"])
def test_attnctl_names_a_file_that_it_cannot_read(secure, flag):
    refused = attnctl(secure, "info", f"--{flag}", "/nowhere/file")
    assert refused.returncode == 2
    assert f"--{flag}=/nowhere/file" in refused.stderr


@pytest.mark.parametrize("key, code", [("server", 0), ("client", 2)])
def test_check_tells_whose_key_it_is(files, key, code):
    command = [server_process.BINARY, "--check", "--model", "builtin:apex1-tiny"]
    command += ["--tls_cert", str(files / "server.pem"), "--tls_key", str(files / f"{key}.key")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert ("client.key: the key is not the certificate's" in done.stderr) == (code == 2)
    assert len(done.stderr.splitlines()) == (code == 2)
