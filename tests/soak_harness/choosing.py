"""Random steps: mostly acceptable ones, of every length, sometimes ones that must be refused."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import List, Optional

from .history import History, Layer, Step


def rows(choose: random.Random, most: int) -> int:
    """A number of rows, 1 to `most`: often one, sometimes many."""
    bound = choose.choices((1, 8, 64, 220), (40, 30, 20, 10))[0]
    return choose.randint(1, max(1, min(bound, most)))


def position(choose: random.Random, history: History, index: int, cut: bool) -> int:
    """Where the next step of a layer starts: mostly at its length, with `cut` mostly before it."""
    layer = history.layers[index]
    weights = (20, 15, 30, 30, 5) if cut else (72, 8, 10, 5, 5)
    kind = choose.choices(("append", "repeat", "near", "far", "anew"), weights)[0]
    if kind == "repeat" and 0 <= layer.last_start <= layer.length:
        return layer.last_start
    if kind == "near":
        return max(0, layer.length - choose.randint(1, history.rules.max_rewind + 4))
    if kind == "far":
        return choose.randint(0, layer.length)
    if kind == "anew" or layer.length >= history.limit:
        return 0
    return layer.length


def step(
    choose: random.Random, history: History, index: Optional[int] = None, switch: bool = True,
    most: int = 1 << 20, replacing: bool = False,
) -> Step:  # fmt: skip
    """A step that may be sent now. With `switch` it may go on with another variant.

    With `replacing` mostly one of many rows, which takes a while, in place of others.
    """
    if index is None:
        free = [i for i, layer in enumerate(history.layers) if layer.pending is None]
        index = choose.choice(free)
    layer = history.layers[index]
    at = position(choose, history, index, cut=replacing)
    room = history.limit - at
    if at < history.prefix and choose.random() < 0.3:
        n = min(room, history.prefix - at + choose.randint(0, 5))  # completes the prefix
    elif replacing:
        n = choose.randint(1, max(1, min(room, 220)))
    else:
        n = rows(choose, room)
    n = min(n, most)
    variants = history.family.compatible(layer.variant, at) if switch else [layer.variant]
    if replacing:
        variants = [variant for variant in variants if variant != layer.variant] or variants
    decode = n <= 16 and choose.random() < (0.6 if at >= history.prefix else 0.02)
    rewind = at < layer.length or choose.random() < 0.1
    return Step(
        layer=index,
        position=at,
        rows=n,
        variant=choose.choice(variants),
        rewind=rewind,
        decode=decode,
        output_rows="all" if decode else choose.choices(("all", "last", "none"), (70, 15, 15))[0],
        expected_length=layer.length if rewind and choose.random() < 0.5 else 0,
    )


def spoiled(choose: random.Random, history: History, good: Step) -> Step:
    """The step with something in it that must be refused."""
    layer: Layer = history.layers[good.layer]
    wrong: List[Step] = [
        replace(good, position=layer.length + 1 + choose.randint(0, 3), rewind=False),
        replace(good, position=history.limit, rows=1),
    ]
    if layer.length > 1:
        wrong.append(replace(good, position=layer.length - 1, rewind=False, rows=1))
        wrong.append(replace(good, position=0, rewind=True, expected_length=layer.length + 7))
    return replace(choose.choice(wrong), decode=False)
