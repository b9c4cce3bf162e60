"""What the chart renders, for each set of values: valid for Kubernetes, and consistent in itself."""

import re
import subprocess

import helm_python
import kubernetes_validate
import pytest
import yaml
from chart import CHART, ROOT, ChartError, render

KUBERNETES = ("1.27", "1.37")  # the oldest that Chart.yaml takes, and the newest known
CUSTOM = {"ServiceMonitor"}  # of an operator: not in Kubernetes' schemas


def test_every_object_is_valid_for_the_oldest_and_the_newest_kubernetes(rendered):
    for version in KUBERNETES:
        for item in rendered.objects:
            if item["kind"] not in CUSTOM:
                kubernetes_validate.validate(item, version, strict=True)


def test_a_pod_has_longer_to_stop_than_stopping_takes(rendered):
    flags = dict(line[2:].split("=", 1) for line in rendered.flags())
    stop = float(flags["drain_seconds"]) + float(flags["shutdown_grace_seconds"])
    hook = rendered.container().get("lifecycle", {}).get("preStop")
    if hook:
        stop += int(re.search(r"timeout (\d+) attnctl drain", hook["exec"]["command"][-1])[1])
    assert rendered.server()["terminationGracePeriodSeconds"] >= stop + 10
    for deployment in rendered.of("Deployment"):
        spec = deployment["spec"]["template"]["spec"]
        hook = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
        assert spec["terminationGracePeriodSeconds"] >= int(re.search(r"sleep (\d+)", hook)[1]) + 10


def test_sessions_move_before_a_pod_stops_where_there_is_a_balancer(rendered):
    balanced = rendered.of("Deployment") or "haproxy" in str(rendered.objects)
    assert bool(balanced) == ("lifecycle" in rendered.container())


def test_a_fleet_with_tokens_may_choose_to_move_nothing():
    rendered = render({"envoy": {"enabled": True}, "tokens": {"secret": "s"}, "stopping": {"moveSeconds": 0}})
    assert "lifecycle" not in rendered.container()


def test_a_server_may_read_its_weights_for_as_long_as_asked():
    for seconds in (30, 1800):
        probe = render({"startup": {"seconds": seconds}}).container()["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] == seconds


def test_every_probe_asks_a_port_that_its_container_has(rendered):
    for _, template in rendered.pods():
        for container in template["spec"]["containers"]:
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            probes = [
                container[name] for name in ("startupProbe", "livenessProbe", "readinessProbe") if name in container
            ]
            assert len(probes) >= 2
            for probe in probes:
                (port,) = [probe[how]["port"] for how in ("grpc", "httpGet", "tcpSocket") if how in probe]
                assert port in ports or port in ports.values()


def test_services_policies_and_monitors_name_ports_and_pods_that_exist(rendered):
    pods = [
        (t["metadata"]["labels"], {p["name"] for c in t["spec"]["containers"] for p in c["ports"]})
        for _, t in rendered.pods()
    ]

    def chosen(labels):
        return [ports for have, ports in pods if labels.items() <= have.items()]

    for service in rendered.of("Service"):
        assert len(chosen(service["spec"]["selector"])) == 1, service["metadata"]["name"]
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in chosen(service["spec"]["selector"])[0]
    for kind in ("NetworkPolicy", "PodDisruptionBudget"):
        for item in rendered.of(kind):
            labels = item["spec"].get("podSelector", item["spec"].get("selector"))["matchLabels"]
            assert len(chosen(labels)) == 1, item["metadata"]["name"]
    for monitor in rendered.of("ServiceMonitor"):
        labels = monitor["spec"]["selector"]["matchLabels"]
        services = [s for s in rendered.of("Service") if labels.items() <= s["metadata"]["labels"].items()]
        ports = {port["name"] for service in services for port in service["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports
        assert [s["spec"]["clusterIP"] for s in services if "http" in {p["name"] for p in s["spec"]["ports"]}] == [
            "None"
        ]


def test_the_network_policy_lets_each_call_through_that_is_made(rendered):
    policies = rendered.of("NetworkPolicy")
    if not policies:
        return
    server = rendered.one("NetworkPolicy", rendered.one("StatefulSet")["metadata"]["name"])["spec"]
    assert {port["port"] for rule in server["ingress"] for port in rule["ports"]} == {"grpc", "http"}
    # preStop looks the balancer up and calls it; without one a server calls nobody.
    out = {port["port"] for rule in server["egress"] for port in rule["ports"]}
    assert (53 in out and len(out) == 2) == ("lifecycle" in rendered.container()), out
    if rendered.of("Deployment"):
        balancer = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"]
        (grpc,) = [rule for rule in server["ingress"] if rule["ports"] == [{"port": "grpc"}]]
        assert grpc["from"][0]["podSelector"]["matchLabels"].items() <= balancer.items()


def test_every_volume_is_a_config_a_claim_or_a_secret_that_exists_or_was_named(rendered):
    made = {item["metadata"]["name"] for item in rendered.of("ConfigMap")}
    given = {"attnd-tls", "attnd-tokens", "envoy-tls", "weights"}  # in values.py
    for _, template in rendered.pods():
        spec = template["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        mounts = [mount for container in spec["containers"] for mount in container["volumeMounts"]]
        assert {mount["name"] for mount in mounts} == set(volumes)
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in made
            elif "secret" in volume:
                assert volume["secret"]["secretName"] in given
            elif "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in given
            else:
                assert volume["emptyDir"]["sizeLimit"]
        writable = {mount["name"] for mount in mounts if not mount.get("readOnly")}
        assert writable <= {"tmp"}
        assert "imagePullSecrets" not in spec or spec["imagePullSecrets"] == [{"name": "registry"}]


def test_every_file_that_a_flag_or_command_names_is_mounted(rendered):
    container = rendered.container()
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    text = "\n".join(
        rendered.flags()
        + container["args"]
        + container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
    )
    named = re.findall(r"(/(?:etc|models)/[\w./-]+)", text)
    assert "/etc/attnd/conf/attnd.conf" in named
    for path in named:
        assert any(path.startswith(mount + "/") for mount in mounts), path


def test_containers_have_no_rights_and_pods_no_token(rendered):
    for _, template in rendered.pods():
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"]


def test_images_have_a_tag_that_is_a_version(rendered):
    for _, template in rendered.pods():
        for container in template["spec"]["containers"]:
            assert re.search(r":v?\d+\.\d+\.\d+(-\w+)?$", container["image"]), container["image"]


def test_names_fit_kubernetes_and_labels_say_whose_it_is(rendered):
    for item in rendered.objects:
        assert re.fullmatch(r"[a-z][a-z0-9-]{0,62}", item["metadata"]["name"])
        assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == "fleet"
    long = render({"envoy": {"enabled": True}}, name="a" * 53)
    assert (
        max(len(item["metadata"]["name"]) for item in long.objects) <= 52
    )  # leaves room for a pod's number and digest


def test_a_changed_flag_restarts_the_servers():
    def digest(flags):
        return render({"flags": flags}).one("StatefulSet")["spec"]["template"]["metadata"]["annotations"][
            "checksum/config"
        ]

    assert digest({"max_queue": 100}) != digest({"max_queue": 101})
    assert digest({"max_queue": 100}) == digest({"max_queue": 100})


def test_with_autoscaling_the_autoscaler_alone_sets_the_replicas():
    scaled = render({"autoscaling": {"enabled": True}, "replicas": 9})
    assert "replicas" not in scaled.one("StatefulSet")["spec"]
    target = scaled.one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert target == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": scaled.one("StatefulSet")["metadata"]["name"],
    }
    assert render({}).one("StatefulSet")["spec"]["replicas"] == 3


def test_cuda_asks_for_a_card_and_goes_where_cards_are():
    plain, cuda = render({}), render({"device": "cuda", "nodeSelector": {"pool": "cards"}})
    assert "nvidia.com/gpu" not in str(plain.server())
    assert cuda.container()["resources"]["limits"] == {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": 1}
    assert cuda.server()["nodeSelector"] == {"pool": "cards", "nvidia.com/gpu.present": "true"}
    assert cuda.server()["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "--device=cuda:0" in cuda.flags() and "--device=cpu" in plain.flags()
    assert cuda.container()["image"] == plain.container()["image"] + "-cuda"


@pytest.mark.parametrize(
    "values, said",
    [
        ({"stopping": {"terminationGracePeriodSeconds": 40}}, "takes up to 40 s to stop"),
        ({"balancer": "b:1", "stopping": {"terminationGracePeriodSeconds": 160}}, "takes up to 160 s to stop"),
        ({"flags": {"listen": "0.0.0.0:1"}}, "flags.listen: set by the chart"),
        ({"envoy": {"enabled": True}, "tls": {"secret": "s", "clientCa": True}}, "envoy.clientSecret"),
        ({"tls": {"clientCa": True}}, "tls/secret"),
        ({"tokens": {"drainKey": "k"}}, "tokens/secret"),
        ({"envoy": {"enabled": True}, "tokens": {"secret": "s"}}, "tokens.drainKey"),
        ({"replica": 3}, "replica"),
        ({"device": "rocm"}, "device"),
        ({"autoscaling": {"usageRatio": 0.7}}, "usageRatio"),
        ({"image": {"tag": "a b"}}, "tag"),
    ],
)
def test_values_that_cannot_work_are_refused_and_named(values, said):
    with pytest.raises(ChartError, match=re.escape(said)):
        render(values)


def test_what_the_values_file_has_is_what_the_schema_knows():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())

    def compare(value, node, path):
        if node.get("additionalProperties") is False:
            assert set(value) == set(node["properties"]) - {"global"}, path
            for key, item in value.items():
                compare(item, node["properties"][key], f"{path}.{key}")

    compare(values, schema, "values")


def test_the_chart_is_of_the_servers_version(attnd):
    version = subprocess.run([attnd, "--version"], text=True, capture_output=True, check=True).stdout.split()[-1]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == version


def test_envoys_files_are_those_of_deploy_envoy():
    for name in ("envoy.yaml", "cluster.yaml"):
        assert (CHART / "files" / name).resolve() == ROOT / "deploy/envoy" / name


def test_a_packaged_chart_renders_the_same(tmp_path):
    values = {"envoy": {"enabled": True}}
    with helm_python.Chart.load(CHART) as chart:
        archive = chart.save(tmp_path)
        rendered = chart.render(values, name="fleet", namespace="attention")
    with helm_python.Chart.load(archive) as packaged:
        assert packaged.render(values, name="fleet", namespace="attention") == rendered


def test_helm_finds_nothing_to_warn_of():
    report = helm_python.lint(CHART, strict=True)
    assert report["total_charts_linted"] == 1
    # 1 is information: that there is no icon.
    assert [message for message in report["messages"] if message["severity"] > 1] == []
    assert not report["errors"]
