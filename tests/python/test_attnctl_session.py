"""attnctl session against fake servers: its files are the Python client's, its moves end well."""

import json
import subprocess
from pathlib import Path

import pytest

import attnd
from attnd._proto import attnd_pb2 as pb
from support import golden, server_process
from support.fake_server import FakeServer

from test_session import rows
from test_transfers import filled

ATTNCTL = Path(server_process.BINARY).with_name("attnctl")


def attnctl(server, *words):
    command = [str(ATTNCTL), "session", *map(str, words), "--target", server.address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def other():
    folder = golden.FOLDER / "odd"
    server = FakeServer(folder / "model.yaml", folder / "model.safetensors")
    yield server
    server.stop()


@pytest.fixture
def session(fake_client):
    return filled(fake_client)


def test_a_file_of_attnctl_is_read_by_python_and_back(fake, fake_client, session, tmp_path):
    ours, theirs = tmp_path / "python", tmp_path / "attnctl"
    done = attnctl(fake, "export", "a", theirs)
    assert (done.returncode, done.stderr) == (0, "") and "exported a to " in done.stdout
    fake_client.export_session("a", ours)
    assert ours.read_bytes() == theirs.read_bytes()
    assert fake_client.import_session(theirs, "b").lengths == session.lengths
    told = attnctl(fake, "import", ours, "--id", "c", "--json")
    assert json.loads(told.stdout)["layer_lengths"] == ["20", "19", "18", "17"]
    assert fake_client.get_session("c").lengths == session.lengths


def test_export_as_json(fake, session, tmp_path):
    told = json.loads(attnctl(fake, "export", "a", tmp_path / "file", "--json").stdout)
    assert told == {"session_id": "a", "file": str(tmp_path / "file"), "data_bytes": "29600"}


def test_a_fork(fake, fake_client, session):
    done = attnctl(fake, "fork", "a", "--id", "b", "--position", "5")
    assert done.returncode == 0 and done.stdout.startswith("forked b, ")
    assert fake_client.get_session("b").lengths == (5, 5, 5, 5)
    assert attnctl(fake, "fork", "a", "--id", "b").stderr == (
        "attnctl: session: session b exists (SESSION_EXISTS)\n"
    )
    assert attnctl(fake, "fork", "a", "--position", "-1").returncode == 2


def test_a_move_closes_the_session_behind_it(fake, fake_client, session, other):
    done = attnctl(fake, "move", "a", "--to", other.address)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("moved a, ")
    assert list(fake.engine.sessions) == [] and list(other.engine.sessions) == ["a"]
    with attnd.Client(other.address) as client:
        assert client.get_session("a").lengths == (20, 19, 18, 17)


def test_a_move_goes_under_the_sessions_affinity_key(fake, other):
    with attnd.Client(fake.address, affinity_key="worker-7") as client:
        client.create_session(session_id="a")
    assert attnctl(fake, "move", "a", "--to", other.address).returncode == 0
    assert other.metadata[0]["attnd-session-key"] == "worker-7"
    assert other.engine.sessions["a"].request.affinity_key == "worker-7"


@pytest.mark.parametrize("filling", [0, 5, 200])
def test_a_refused_move_leaves_the_session_open(fake, fake_client, other, filling):
    session = fake_client.create_session(session_id="a")
    if filling:
        session.prefill(0, rows(filling))
    other.fingerprint = "xxh3:ffeeddccbbaa99887766554433221100"
    refused = attnctl(fake, "move", "a", "--to", other.address)
    assert refused.returncode == 1
    assert refused.stderr == "attnctl: session: another model (MODEL_MISMATCH)\n"
    assert not fake.engine.moving and not other.engine.sessions
    session.decode(0, rows(1), timeout=1)


def test_a_move_to_nowhere_does_not_begin(fake, session):
    refused = attnctl(fake, "move", "a", "--to", "127.0.0.1:1", "--connect_ms", 200)
    assert refused.returncode == 1 and "no server answers at 127.0.0.1:1" in refused.stderr
    assert fake.exports == 0


def test_what_goes_wrong_is_one_line(fake, session, tmp_path):
    file = tmp_path / "file"
    fake.exporting.damage = True
    damaged = attnctl(fake, "export", "a", file)
    assert damaged.returncode == 1 and damaged.stderr.endswith(" (BAD_DIGEST)\n")
    assert damaged.stderr.count("\n") == 1 and list(tmp_path.iterdir()) == []
    file.write_bytes(b"ATTNDS1\n" + b"\x10\0\0\0" + pb.SessionChunk().SerializeToString())
    cut = attnctl(fake, "import", file)
    assert cut.stderr == f"attnctl: session: {file}: the part at byte 8 is cut off (TRUNCATED)\n"
    file.write_bytes(b"something else")
    assert "not an exported session" in attnctl(fake, "import", file).stderr
    assert "No such file" in attnctl(fake, "import", tmp_path / "none").stderr
