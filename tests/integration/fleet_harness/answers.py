"""What sessions send and must get back: the bits of a server that no balancer stands before."""

from __future__ import annotations

from dataclasses import dataclass

import attnd
import numpy as np

PROMPT = 16  # rows of the one prefill of a session
ROWS = 240  # rows of a session in all, decoded one by one after the prompt


@dataclass(frozen=True)
class Answers:
    """Of every session, by number: its rows, sent to all layers, and the outputs of each layer."""

    hidden: np.ndarray  # [sessions, ROWS, d_model]
    outputs: np.ndarray  # [layers, sessions, ROWS, d_model]

    @property
    def layers(self) -> int:
        return len(self.outputs)

    def right(self, layer: int, session: int, first: int, output: np.ndarray) -> bool:
        """Whether the output rows from `first` on are the same bits."""
        expected = self.outputs[layer, session, first : first + len(output)]
        return output.tobytes() == expected.tobytes()


def ask(address: str, sessions: int, seed: int = 1) -> Answers:
    """Sends every session's rows as its workers will: the prompt at once, then row by row."""
    with attnd.Client(address, timeout=60) as client:
        model = client.model()
        random = np.random.default_rng(seed)
        hidden = random.standard_normal((sessions, ROWS, model.d_model)).astype(np.float32)
        outputs = np.empty((model.num_layers, sessions, ROWS, model.d_model), np.float32)
        handles = [client.create_session() for _ in range(sessions)]
        for layer in range(model.num_layers):
            for number, handle in enumerate(handles):
                answer = handle.prefill(layer, hidden[number, :PROMPT])
                outputs[layer, number, :PROMPT] = answer.output
            for row in range(PROMPT, ROWS):
                answer = client.decode(layer, handles, hidden[:, row]).raise_for_error()
                outputs[layer, :, row] = answer.output
        for handle in handles:
            handle.close()
    return Answers(hidden, outputs)
