"""Renders deploy/helm/attnd and looks things up in what comes out."""

from __future__ import annotations

import dataclasses
import pathlib

import helm_python
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy/helm/attnd"


@dataclasses.dataclass(frozen=True)
class Rendered:
    objects: list[dict]

    def of(self, kind: str, name: str | None = None) -> list[dict]:
        return [o for o in self.objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]

    def one(self, kind: str, name: str | None = None) -> dict:
        found = self.of(kind, name)
        assert len(found) == 1, f"{len(found)} objects {kind} {name or ''}"
        return found[0]

    def pods(self) -> list[tuple[str, dict]]:
        """Name and pod template of each workload."""
        return [(o["metadata"]["name"], o["spec"]["template"]) for o in self.of("StatefulSet") + self.of("Deployment")]

    def server(self) -> dict:
        """The spec of a server's pod."""
        return self.one("StatefulSet")["spec"]["template"]["spec"]

    def container(self) -> dict:
        return self.server()["containers"][0]

    def flags(self) -> list[str]:
        """The lines of the server's flag file."""
        return self.one("ConfigMap", self.one("StatefulSet")["metadata"]["name"])["data"]["attnd.conf"].splitlines()


class ChartError(Exception):
    """The chart refuses its values."""


def render(values: dict, name: str = "fleet", namespace: str = "attention") -> Rendered:
    """What `helm install` would send to Kubernetes."""
    with helm_python.Chart.load(CHART) as chart:
        try:
            chart.validate_schema(values)
            files = chart.render(values, name=name, namespace=namespace)
        except (helm_python.HelmValuesError, helm_python.HelmRenderError) as error:
            raise ChartError(str(error)) from None
    notes = [path for path in files if path.endswith("NOTES.txt")]
    documents = [document for path in sorted(set(files) - set(notes)) for document in yaml.safe_load_all(files[path])]
    return Rendered([document for document in documents if document])
