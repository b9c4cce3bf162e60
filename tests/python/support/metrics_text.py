"""Prometheus' text format, as far as attnd's /metrics needs it."""

import re
import urllib.request

LINE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", re.M)
LABEL = re.compile(r'([a-z]+)="([^"]*)"')


def scrape(address):
    """{(name, ((label, value), ...)): number}, labels in alphabetical order."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (name, tuple(sorted(LABEL.findall(labels)))): float(value)
        for name, labels, value in LINE.findall(text)
    }


def value(metrics, name, **labels):
    return metrics[name, tuple(sorted(labels.items()))]


def quantile(metrics, family, q, **labels):
    """As histogram_quantile over everything since the server's start."""
    buckets = []
    for (name, pairs), count in metrics.items():
        found = dict(pairs)
        bound = found.pop("le", None)
        if name == f"{family}_bucket" and found == labels:
            buckets.append((float(bound), count))
    buckets.sort()
    rank = q * buckets[-1][1]
    lower, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank and count > below:
            return lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    raise ValueError(f"{family} has no values")
