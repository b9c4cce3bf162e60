"""What the page should show, computed from texts of /metrics; and what it does show."""

from __future__ import annotations

import math
import re
import urllib.request
from typing import Any, Dict, List, Optional

from soak_harness.exposition import Exposition

_UNITS = {
    "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
    "µs": 1e-6, "ms": 1e-3, "s": 1, "%": 0.01, "/s": 1, "": 1,
}  # fmt: skip

# Everything at one moment, with the times of the answers that it is made of.
SNAPSHOT = """(() => {
  const rows = (id) => Object.fromEntries([...document.querySelectorAll(`#${id} tbody tr`)].map((row) =>
    [row.dataset.key, [...row.cells].slice(1).map((cell) => ({value: cell.dataset.value, text: cell.textContent}))]));
  return {
    polls: Number(main.dataset.polls), at: recent.samples.map((sample) => sample.at),
    figures: Object.fromEntries([...document.querySelectorAll('[data-figure]')].map((node) =>
      [node.dataset.figure, {value: node.dataset.value, text: node.textContent}])),
    latency: rows('latency'), steps: rows('steps'), refused: rows('refused'),
    window: document.querySelector('.window-60').textContent,
  };
})()"""


def scrape(http: str) -> Exposition:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        return Exposition(answer.read().decode())


def total(scrape: Exposition, name: str, **labels: str) -> float:
    """Summed over the series with these labels."""
    return sum(
        value
        for (found, series), value in scrape.samples.items()
        if found == name and labels.items() <= dict(series).items()
    )


def quantile(
    q: float, now: Exposition, base: Optional[Exposition], name: str, **labels: str
) -> Optional[float]:
    """As Prometheus' histogram_quantile() of the increase since `base`; None when it is empty."""
    buckets: Dict[float, float] = {}
    for scrape, sign in ((now, 1), (base, -1)):
        for (found, series), value in scrape.samples.items() if scrape else ():
            if found == f"{name}_bucket" and labels.items() <= dict(series).items():
                bound = float(dict(series)["le"])
                buckets[bound] = buckets.get(bound, 0) + sign * value
    bounds = sorted(buckets)
    rank = q * buckets[bounds[-1]]
    if rank == 0:
        return None
    lower, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= rank:
            if math.isinf(bound):
                return bound
            return lower + (bound - lower) * (rank - below) / (buckets[bound] - below)
        lower, below = bound, buckets[bound]
    raise AssertionError("counts of a histogram fall")


def shown(cell: Dict[str, str]) -> Optional[float]:
    """A figure's exact value, after its text was held against it."""
    text = cell["text"].replace("\u202f", "").replace(",", "")
    if cell["value"] == "":
        assert text == "–", cell
        return None
    value = float(cell["value"])
    if math.isinf(value):
        assert text == "> 60s", cell
        return value
    match = re.fullmatch(r"(-?[\d.]+)(.*)", text)
    assert match, cell
    number, unit = match.groups()
    # Three digits, or all those of a whole number, or tenths of a percent.
    near = 0.051 * _UNITS[unit] if unit == "%" else 0.0051 * _UNITS[unit]
    assert math.isclose(float(number) * _UNITS[unit], value, rel_tol=0.0051, abs_tol=near), cell
    return value


def equal(cell: Dict[str, str], expected: Optional[float], what: str) -> None:
    value = shown(cell)
    if expected is None:
        assert value is None, f"{what}: {cell}, expected nothing"
    else:
        assert value is not None and math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-12), (
            f"{what}: {cell}, expected {expected}"
        )


def check_gauges(figures: Dict[str, Any], now: Exposition) -> None:
    """Those figures that one answer of /metrics gives."""
    used = {kind: total(now, "attnd_kv_cache_used_bytes", kind=kind) for kind in ("global", "local", "held")}
    reserved = total(now, "attnd_kv_cache_reserved_bytes")
    expected = {
        "cache_ratio": total(now, "attnd_kv_cache_usage_ratio"),
        "cache_taken": sum(used.values()) + reserved,
        "cache_capacity": total(now, "attnd_kv_cache_capacity_bytes"),
        "sessions": total(now, "attnd_sessions"),
        "sessions_expired": total(now, "attnd_sessions_ended_total", reason="expired"),
        "sessions_evicted": total(now, "attnd_sessions_ended_total", reason="evicted"),
        "queue_depth": total(now, "attnd_queue_depth"),
        "inflight_rpcs": total(now, "attnd_inflight_rpcs"),
        "inflight_bytes": total(now, "attnd_inflight_bytes"),
        "refused_total": total(now, "attnd_rejected_total"),
        **{f"cache-chart-{kind}": value for kind, value in used.items()},
        "cache-chart-reserved": reserved,
    }
    for name, value in expected.items():
        equal(figures[name], value, name)


def check_rates(snapshot: Dict[str, Any], scrapes: List[Exposition], layers: int) -> None:
    """What changed since another answer; `scrapes` are those that the page has kept."""
    at, now, figures = snapshot["at"], scrapes[-1], snapshot["figures"]

    def base(seconds: float) -> int:
        return next(i for i, then in enumerate(at) if then >= at[-1] - seconds * 1000 - 500)

    def rate(seconds: float, name: str, **labels: str) -> float:
        first = base(seconds)
        grown = total(now, name, **labels) - total(scrapes[first], name, **labels)
        return grown / ((at[-1] - at[first]) / 1000)

    equal(figures["tokens_rate"], rate(10, "attnd_tokens_total") / layers, "tokens_rate")
    equal(figures["requests_rate"], rate(10, "attnd_rpc_requests_total"), "requests_rate")
    equal(figures["cpu"], rate(10, "process_cpu_seconds_total"), "cpu")
    minute = scrapes[base(60)]
    duration = "attnd_rpc_duration_seconds"
    equal(figures["p99"], quantile(0.99, now, minute, duration), "p99")
    for method, cells in snapshot["latency"].items():
        failed = [
            sum(v for c, v in by_code(scrape, method).items() if c != "OK") for scrape in (now, minute)
        ]
        expected = [rate(60, f"{duration}_count", method=method)]
        expected += [quantile(q, now, minute, duration, method=method) for q in (0.5, 0.95, 0.99)]
        expected += [failed[0] - failed[1], total(now, f"{duration}_count", method=method)]
        expected += [quantile(q, now, None, duration, method=method) for q in (0.5, 0.95, 0.99)]
        for i, value in enumerate([*expected, failed[0]]):
            equal(cells[i], value, f"latency of {method}, column {i}")
    for step, cells in snapshot["steps"].items():
        phase, kind = step.split()
        for i, cell in enumerate(cells):
            name = ("attnd_step_queue_seconds", "attnd_step_compute_seconds")[i // 2]
            q = (0.5, 0.99)[i % 2]
            equal(cell, quantile(q, now, minute, name, phase=phase, kind=kind), f"{step}, column {i}")
    for reason, (recently, ever) in snapshot["refused"].items():
        name = "attnd_rejected_total"
        grown = total(now, name, reason=reason) - total(minute, name, reason=reason)
        equal(recently, grown, reason)
        equal(ever, total(now, name, reason=reason), reason)


def by_code(scrape: Exposition, method: str) -> Dict[str, float]:
    return {
        dict(labels)["code"]: value
        for (name, labels), value in scrape.samples.items()
        if name == "attnd_rpc_requests_total" and dict(labels)["method"] == method
    }
