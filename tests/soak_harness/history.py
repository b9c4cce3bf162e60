"""What a session holds as its client knows it: the rules of positions, and the rows to expect.

The rules are the wire contract's, written down once more and as plainly as they can be: which step
is accepted, with what reason one is refused, and what the layer holds afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import List, Optional, Set, Tuple

import numpy as np

from .streams import Family


@dataclass(frozen=True)
class Rules:
    """What the server is run with, as far as positions depend on it."""

    window: int
    max_rewind: int
    global_layers: Tuple[bool, ...]
    max_seq_len: int
    max_message_bytes: int
    d_model: int
    steps_per_stream: int = 16


@dataclass(frozen=True)
class Step:
    """Rows of one session for one layer, of `variant`, to be appended at `position`."""

    layer: int
    position: int
    rows: int
    variant: int
    rewind: bool = False
    decode: bool = False
    output_rows: str = "all"  # prefill only
    expected_length: int = 0

    @property
    def end(self) -> int:
        return self.position + self.rows


@dataclass
class Layer:
    """A layer of a session."""

    length: int = 0
    first: int = 0  # the oldest token that a cut may rely on
    last_start: int = 0  # where the last step began; -1: no step can be repeated
    variant: int = 0
    # Not every detail is known (a fork, an import, a broken stream): cuts that are accepted for
    # `first` or `last_start` alone may go either way.
    fuzzy: bool = False
    # A step whose outcome the client does not know. It is repeated before anything else.
    pending: Optional[Step] = None

    def cut(self, position: int) -> None:
        if position == 0:
            self.length, self.first, self.last_start, self.fuzzy = 0, 0, 0, False
            return
        self.length = position
        if position < self.last_start:
            self.last_start = -1


@dataclass
class History:
    """A session's layers and what its steps may do."""

    family: Family
    rules: Rules
    max_tokens: int = 0
    layers: List[Layer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.layers = self.layers or [Layer() for _ in self.rules.global_layers]

    @property
    def prefix(self) -> int:
        return self.family.prefix

    @property
    def limit(self) -> int:
        return self.max_tokens or self.rules.max_seq_len

    @property
    def settled(self) -> bool:
        return all(layer.pending is None for layer in self.layers)

    def copy(self) -> "History":
        return replace(self, layers=[replace(layer) for layer in self.layers])

    def cut_refusals(self, index: int, position: int) -> Set[str]:
        """The reasons with which a cut may be refused; "" is among them when it may be accepted."""
        layer = self.layers[index]
        if position in (0, layer.length):
            return {""}
        refusal = ""
        if position < self.prefix <= layer.length:
            refusal = "PREFIX_ANSWERED"
        elif not self.rules.global_layers[index] and 0 < layer.first > position - self.rules.window:
            refusal = "REWIND_TOO_FAR"
        if layer.fuzzy:
            return {"", refusal}
        return {""} if position == layer.last_start else {refusal}

    def refusals(self, step: Step, unary: bool = True) -> Set[str]:
        """As cut_refusals, of a step that was sent now; what the server's load does comes on top."""
        layer = self.layers[step.layer]
        if step.end > self.rules.max_seq_len:
            return {"PAST_MAX_SEQ_LEN"}
        if unary and self.answer_bytes(step) > self.rules.max_message_bytes:
            return {"MESSAGE_TOO_LARGE"}
        if step.end > self.limit:
            return {"PAST_MAX_TOKENS"}
        guarded = step.rewind and step.expected_length > 0
        if guarded and layer.length not in (step.expected_length, step.position):
            return {"POSITION_MISMATCH"}
        if step.position > layer.length or (step.position < layer.length and not step.rewind):
            return {"POSITION_MISMATCH"}
        allowed = self.cut_refusals(step.layer, step.position)
        if step.decode and step.position < self.prefix:
            return (allowed - {""}) | {"PREFIX_INCOMPLETE"}
        return allowed

    def answered(self, step: Step) -> Tuple[int, int]:
        """[begin, end) of the positions whose rows the step answers, begin = its position if none."""
        if step.decode:
            return step.position, step.end
        if step.end < self.prefix or step.output_rows == "none":
            return step.position, step.position
        if step.output_rows == "last":
            return step.end - 1, step.end
        return (0 if step.position < self.prefix else step.position), step.end

    def answer_bytes(self, step: Step) -> int:
        begin, end = self.answered(step)
        return (end - begin) * self.rules.d_model * 4 + 256  # about what surrounds the rows

    def hidden(self, step: Step) -> np.ndarray:
        rows = self.family.hidden[step.variant][step.layer]
        if step.end > len(rows):  # it will be refused; any rows do
            return rows[: step.rows]
        return rows[step.position : step.end]

    def expected(self, step: Step) -> np.ndarray:
        begin, end = self.answered(step)
        return self.family.answers[step.variant][step.layer][begin:end]

    def apply(self, step: Step) -> None:
        """The step was accepted."""
        layer = self.layers[step.layer]
        if step.position < layer.length:
            layer.cut(step.position)
        layer.length, layer.last_start, layer.variant = step.end, step.position, step.variant
        layer.pending = None
        if not self.rules.global_layers[step.layer] and step.end >= self.prefix:
            layer.first = max(layer.first, step.end - self.rules.window - self.rules.max_rewind)

    def rewind_refusals(self, position: int) -> Set[str]:
        """Of a RewindSession: the layers longer than `position` are cut, or none."""
        reasons: Set[str] = set()
        certain = False
        for index, layer in enumerate(self.layers):
            if layer.length > position:
                allowed = self.cut_refusals(index, position)
                reasons |= allowed - {""}
                certain = certain or "" not in allowed
        return reasons if certain else reasons | {""}

    def apply_rewind(self, position: int) -> None:
        for layer in self.layers:
            if layer.length > position:
                layer.cut(position)
