"""Reads dashboards with Grafana's own types and tells what these do not know. Runs by itself, in the virtual
environment of requirements.txt: grafana_schema.py DASHBOARD..."""

import json
import sys
from typing import Any, Iterator

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

# Grafana reads and writes them, but its types leave them to the data source.
UNTYPED = {"builtIn", "definition", "expr", "step", "titleFormat", "useValueForTime"}


def lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """What is not there any more, or changed, after a dashboard was read and written."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from lost(value, after[key], f"{path}.{key}")
            elif key not in UNTYPED:
                yield f"{path}.{key} is unknown"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (one, other) in enumerate(zip(before, after)):
            yield from lost(one, other, f"{path}[{at}]")
    elif before != after:
        yield f"{path} is {before!r}, read as {after!r}"


def main(paths: list) -> int:
    register_default_plugins()
    problems = []
    for path in paths:
        with open(path) as file:
            dashboard = json.load(file)
        read = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
        problems += [f"{path}{problem}" for problem in lost(dashboard, read)]
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
