"""The rows that clients send, and the answers that they must get.

A *family* is a prefix length and a few *variants*: sequences of hidden rows that agree up to a
branch point and differ behind it. A layer that was cut to a position goes on with any variant that
agrees up to there, so that a row that should have been cut away, or one of another session, shows
in the answers. Answers are a float64 forward pass of the whole sequence; causal attention makes
row i of it right for every length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from support import reference  # of tests/python

TOLERANCE = 1e-5  # float32 throughout; tests/golden/README.md


@dataclass
class Family:
    """Sequences that share a prefix length P."""

    prefix: int
    hidden: List[np.ndarray]  # per variant: [layers, rows, d_model] float32
    answers: List[np.ndarray]  # per variant: [layers, rows, d_model] float64
    common: np.ndarray  # [variants, variants]: how many first rows agree

    @property
    def rows(self) -> int:
        return self.hidden[0].shape[1]

    def compatible(self, variant: int, position: int) -> List[int]:
        """The variants that agree with this one below `position`."""
        return [other for other in range(len(self.hidden)) if self.common[variant][other] >= position]


def branches(prefix: int, rows: int, random: np.random.Generator) -> List[Tuple[int, int]]:
    """(the variant that it leaves, where) of variants 1, 2, ...: on every way there is a fork behind."""
    early = prefix // 2 if prefix else int(random.integers(1, 24))
    late = [int(random.integers(low, high)) for low, high in ((30, 80), (60, 140), (150, rows * 3 // 4))]
    return [(0, early), (0, late[0]), (1, late[1]), (0, late[2])]


def make_family(
    config: Dict[str, Any], weights: Dict[str, np.ndarray], prefix: int, rows: int,
    random: np.random.Generator,
) -> Family:  # fmt: skip
    layers, width = config["n_layers"], config["d_model"]
    hidden = [random.standard_normal((layers, rows, width)).astype(np.float32)]
    for origin, branch in branches(prefix, rows, random):
        hidden.append(random.standard_normal((layers, rows, width)).astype(np.float32))
        hidden[-1][:, :branch] = hidden[origin][:, :branch]
    answers = [
        np.stack([reference.forward(config, weights, layer, x[layer], prefix) for layer in range(layers)])
        for x in hidden
    ]
    common = np.array([[_agreeing(x, y) for y in hidden] for x in hidden])
    return Family(prefix, hidden, answers, common)


def _agreeing(x: np.ndarray, y: np.ndarray) -> int:
    differs = (x != y).any(axis=(0, 2))
    return int(differs.argmax()) if differs.any() else len(differs)


def make_families(
    config: Dict[str, Any], weights: Dict[str, np.ndarray], seed: int, prefixes: Sequence[int]
) -> List[Family]:  # fmt: skip
    """A family per prefix length, each as long as the model's max_seq_len."""
    random = np.random.default_rng(seed)
    rows = config["max_seq_len"]
    return [make_family(config, weights, prefix, rows, random) for prefix in prefixes]


def wrong(output: np.ndarray, expected: np.ndarray) -> str:
    """Why an answer does not pass, "" if it does: the rule of tests/golden/README.md."""
    if output.shape != expected.shape:
        return f"its shape is {output.shape}; expected {expected.shape}"
    if not output.size:
        return ""
    if not np.isfinite(output).all():
        return f"row {int(np.argmax(~np.isfinite(output).all(axis=1)))} has a NaN or an infinity"
    difference = np.abs(output.astype(np.float64) - expected)
    relative = np.linalg.norm(difference) / np.linalg.norm(expected)
    worst = difference.max() / np.abs(expected).max()
    if relative <= TOLERANCE and worst <= 100 * TOLERANCE:
        return ""
    row = int(difference.max(axis=1).argmax())
    return f"relative error {relative:.1e}, row {row} of {len(output)} is off by {worst:.1e} of the largest"
