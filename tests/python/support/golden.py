"""The golden cases and how an answer is held against them."""

import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import safetensors

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("ATTND_GOLDEN", ROOT / "tests" / "golden"))
MODELS = ("apex1_tiny", "large_shape", "mha", "mqa_yarn", "odd", "small_shape", "yarn_mid")


class Case(NamedTuple):
    name: str
    layer: int
    prefix: int
    x: np.ndarray  # [rows, d_model]
    y: np.ndarray  # [rows, d_model], one full forward pass


def cases(model):
    """All cases of a model, in the order of their names."""
    tensors = safetensors.read(FOLDER / model / "cases.safetensors")
    found = []
    for key in sorted(tensors):
        match = re.fullmatch(r"layer(\d+)\.len(\d+)\.prefix(\d+)\.x", key)
        if match:
            layer, _, prefix = map(int, match.groups())
            found.append(Case(key[:-2], layer, prefix, tensors[key], tensors[key[:-1] + "y"]))
    assert found, f"no cases in {FOLDER / model}"
    return found


def error_of(output, expected):
    """The relative error over a case (Frobenius), and the largest element's over max|y|."""
    assert output.shape == expected.shape
    assert np.isfinite(output).all(), "NaN or infinity in the output"
    difference = output.astype(np.float64) - expected
    norm = np.linalg.norm(difference) / np.linalg.norm(expected)
    return norm, np.abs(difference).max() / np.abs(expected).max()


def check(output, expected, tolerance, what):
    """Within the tolerance over the case, and 100 times it for the worst element."""
    norm, worst = error_of(output, expected)
    assert norm <= tolerance, f"{what}: error {norm:.2e} > {tolerance:.0e}"
    assert worst <= 100 * tolerance, f"{what}: an element off by {worst:.2e} of the largest"
