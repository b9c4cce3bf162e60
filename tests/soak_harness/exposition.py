"""/metrics: the text format, and what must hold of it at every moment, over time, and in the end."""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

Series = Tuple[str, Tuple[Tuple[str, str], ...]]  # name, labels
Sample = Dict[Series, float]

_LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
# Series of these appear with the first answer of a kind; all others are there from the start.
_GROWING = {"attnd_rpc_requests_total"}
_LABELS = {"version", "device", "kind", "reason", "method", "code", "phase", "le"}


class Exposition:
    """A scrape."""

    def __init__(self, text: str):
        self.types: Dict[str, str] = {}
        self.samples: Sample = {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ", 3)
                self.types[name] = kind
            elif line and not line.startswith("#"):
                match = _LINE.match(line)
                if match is None:
                    raise ValueError(f"not a line of /metrics: {line!r}")
                name, labels, value = match.groups()
                self.samples[name, tuple(_LABEL.findall(labels or ""))] = float(value)

    def value(self, name: str) -> float:
        """The sum over the labels; KeyError where there is no such series."""
        values = [value for (found, _), value in self.samples.items() if found == name]
        if not values:
            raise KeyError(name)
        return sum(values)

    def by(self, name: str, label: str) -> Dict[str, float]:
        """The sum by the value of one label."""
        sums: Dict[str, float] = {}
        for (found, labels), value in self.samples.items():
            if found == name:
                key = dict(labels).get(label, "")
                sums[key] = sums.get(key, 0) + value
        return sums

    def monotonic(self) -> Sample:
        """The series that may never fall: counters, and the counts of histograms."""
        return {key: value for key, value in self.samples.items() if self._counts(key[0])}

    def _counts(self, name: str) -> bool:
        family = re.sub(r"_(bucket|count|sum)$", "", name)
        return self.types.get(name) == "counter" or self.types.get(family) == "histogram"


def moment(scrape: Exposition) -> List[str]:
    """What is wrong with one scrape."""
    wrong = [
        f"{name}{dict(labels)} is {value:g}"
        for (name, labels), value in scrape.samples.items()
        if not value >= 0
    ]
    capacity = scrape.value("attnd_kv_cache_capacity_bytes")
    used = scrape.value("attnd_kv_cache_used_bytes") + scrape.value("attnd_kv_cache_reserved_bytes")
    ratio = scrape.value("attnd_kv_cache_usage_ratio")
    if not 0 <= ratio <= 1:
        wrong.append(f"the usage ratio is {ratio}")
    if abs(ratio - used / capacity) > 1e-6:
        wrong.append(f"the usage ratio is {ratio}; used and reserved are {used / capacity} of the capacity")
    held = scrape.value("attnd_sessions_created_total") - scrape.value("attnd_sessions_ended_total")
    if held != scrape.value("attnd_sessions"):
        wrong.append(f"attnd_sessions is {scrape.value('attnd_sessions'):g}; created minus ended is {held:g}")
    strange = {label for _, labels in scrape.samples for label, _ in labels} - _LABELS
    if strange:
        wrong.append(f"unknown labels: {', '.join(sorted(strange))}")
    return wrong


def change(before: Exposition, now: Exposition) -> List[str]:
    """What is wrong between two scrapes: a counter fell, series came or went."""
    after = now.samples
    wrong = [
        f"{name}{dict(labels)} fell from {value:g} to {after.get((name, labels), 0):g}"
        for (name, labels), value in before.monotonic().items()
        if after.get((name, labels), -1) < value
    ]
    fresh = {key for key in after if key not in before.samples and key[0] not in _GROWING}
    lost = {key for key in before.samples if key not in after}
    return wrong + [f"series came: {key}" for key in sorted(fresh)] + [f"series went: {key}" for key in sorted(lost)]


def at_rest(scrape: Exposition) -> List[str]:
    """What is left when every session has been closed and nothing runs."""
    names = ("attnd_sessions", "attnd_kv_cache_used_bytes", "attnd_kv_cache_reserved_bytes")
    names += ("attnd_kv_cache_tokens", "attnd_queue_depth", "attnd_inflight_rpcs")
    left = [f"{name} is {scrape.value(name):g}, not 0" for name in names if scrape.value(name)]
    timed = scrape.by("attnd_rpc_duration_seconds_count", "method")
    for method, requests in scrape.by("attnd_rpc_requests_total", "method").items():
        if timed.get(method) != requests:
            left.append(f"{method}: {requests:g} requests, {timed.get(method, 0):g} durations")
    return left


def leaked_bytes(scrape: Exposition) -> int:
    return int(scrape.value("attnd_kv_cache_used_bytes") + scrape.value("attnd_kv_cache_reserved_bytes"))
