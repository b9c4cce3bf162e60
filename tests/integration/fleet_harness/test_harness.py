"""The configurations under test are those of deploy/, and a wrong count fails."""

import numpy as np
import pytest
import yaml
from attnd import errors
from fleet_harness import configs
from fleet_harness.answers import Answers
from fleet_harness.configs import Endpoint
from fleet_harness.report import Report
from fleet_harness.workers import Tally

SERVERS = [Endpoint(n, f"attnd-{n}:8470", f"attnd-{n}:9470") for n in (1, 2, 3)]


def test_envoys_files_are_those_of_deploy_but_for_their_folder(tmp_path):
    path = configs.write_envoy(tmp_path, "0.0.0.0:8470", "127.0.0.1:9901", SERVERS)
    shipped = (configs.ENVOY / "envoy.yaml").read_text().replace("/etc/envoy", str(tmp_path))
    assert yaml.safe_load(path.read_text()) == yaml.safe_load(shipped)
    (cluster,) = yaml.safe_load((tmp_path / "cluster.yaml").read_text())["resources"]
    assert cluster == configs.envoy_cluster()


def test_haproxys_file_is_that_of_deploy_but_for_ports_of_checks(tmp_path):
    path = configs.write_haproxy(tmp_path, ":8470", SERVERS)
    written = path.read_text().replace(str(tmp_path / "admin.sock"), "/run/haproxy/admin.sock")
    assert written.replace(" port 9470\n", "\n") == configs.HAPROXY.read_text()


def test_a_server_is_added_to_haproxy_with_what_the_others_have():
    commands = configs.haproxy_commands(Endpoint(4, "10.0.0.4:8470", "10.0.0.4:9470"))
    for words in ("proto h2", "weight 64", "inter 1s", "on-error mark-down", "id 4 check-proto h1 port 9470"):
        assert words in commands[0]
    assert "\n".join(commands) in (configs.ROOT / "deploy" / "BALANCING.md").read_text()


def test_an_answer_that_differs_in_one_bit_is_wrong():
    outputs = np.zeros((1, 2, 4, 8), np.float32)
    answers = Answers(np.zeros((2, 4, 8), np.float32), outputs)
    assert answers.right(0, 1, 2, outputs[0, 1, 2:3])
    other = outputs[0, 1, 2:3].copy()
    other.view(np.uint32)[0, 3] = 1  # the least number above 0
    assert not answers.right(0, 1, 2, other)


@pytest.mark.parametrize("spoil", [lambda t: t.judge(False), lambda t: t.fail(errors.NotFound("gone"))])
def test_a_wrong_answer_and_a_failed_step_fail_their_scenario(spoil):
    tally, report = Tally(), Report("envoy", "stay")
    tally.judge(True)
    tally.tell(report)
    assert report.passed
    spoil(tally)
    again = Report("envoy", "stay")
    tally.tell(again)
    assert not again.passed


def test_a_scenario_in_which_nothing_was_answered_has_not_passed():
    report = Report("envoy", "stay")
    Tally().tell(report)
    assert not report.passed


def test_a_scenario_without_a_count_has_not_passed():
    assert not Report("envoy", "stay").passed
