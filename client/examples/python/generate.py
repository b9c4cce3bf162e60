#!/usr/bin/env python3
"""Generates tokens for several sessions: attention on the server, everything else here.

    generate.py [--target 127.0.0.1:8470] [--sessions 4] [--prompt 64] [--tokens 16]

The model around the attention is a toy (a norm, a residual, a random embedding), so the tokens
mean nothing; the calls are those of a real model: per layer one prefill a session, then per
token one Decode a layer for all sessions together.
"""

import argparse
import time

import attnd
import numpy as np

VOCABULARY = 1000


def normalised(x):
    """What the server is sent: the hidden states after the layer's norm, [rows, d_model]."""
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="127.0.0.1:8470")
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=64, help="rows a session")
    parser.add_argument("--tokens", type=int, default=16, help="decoded a session")
    arguments = parser.parse_args()

    with attnd.Client(arguments.target) as client:
        model = client.model()
        random = np.random.default_rng(0)
        embedding = random.standard_normal((VOCABULARY, model.d_model)).astype(np.float32)
        cap = arguments.prompt + arguments.tokens
        sessions = [client.create_session(max_tokens=cap) for _ in range(arguments.sessions)]
        print(f"{model.name} on {model.device}: {model.num_layers} layers, d = {model.d_model}")

        last = []
        start = time.perf_counter()
        for session in sessions:
            x = embedding[random.integers(VOCABULARY, size=arguments.prompt)]
            for layer in range(model.num_layers):
                x = x + session.prefill(layer, normalised(x), retries=2).output
            last.append(x[-1])
        seconds = time.perf_counter() - start
        print(f"prefill: {arguments.prompt * len(sessions) / seconds:.0f} rows/s")

        tokens = []
        start = time.perf_counter()
        for _ in range(arguments.tokens):
            tokens.append((normalised(np.stack(last)) @ embedding.T).argmax(axis=1))
            x = embedding[tokens[-1]]
            for layer in range(model.num_layers):
                answer = client.decode(layer, sessions, normalised(x), retries=2)
                x = x + answer.raise_for_error().output
            last = list(x)
        seconds = time.perf_counter() - start
        print(f"decode: {arguments.tokens * len(sessions) / seconds:.0f} tokens/s")
        for session, mine in zip(sessions, np.stack(tokens, axis=1)):
            print(session.session_id, session.info().cache_bytes, "bytes:", *mine)
            session.close()


if __name__ == "__main__":
    main()
