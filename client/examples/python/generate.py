"""Prefills 8 rows and decodes one token through every layer of a running server.

Usage: generate.py [TARGET]
"""

import sys

import numpy as np

import attnd


def main():
    target = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8470"
    with attnd.Client(target) as client:
        model = client.model()
        session = client.create_session()
        # In a real client these are normalised hidden states, and the FFN stands between the layers.
        rng = np.random.default_rng(1)
        prompt = rng.standard_normal((8, model.d_model)).astype(np.float32)
        token = rng.standard_normal((1, model.d_model)).astype(np.float32)
        for layer, kind in enumerate(model.layers):
            session.prefill(layer, prompt)
            answer = session.decode(layer, token)
            print(f"layer {layer} ({kind}): {answer.output.shape}, {answer.timing.compute_ns} ns")
        session.close()


if __name__ == "__main__":
    main()
