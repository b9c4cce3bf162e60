#!/usr/bin/env python3
"""Keeps several micro-batches in flight on one Steps stream, with asyncio.

    pipeline.py [--target 127.0.0.1:8470] [--batches 3] [--sessions 4] [--tokens 16]

While one micro-batch is in attention on the server, the others can be in their FFN here. Each
micro-batch is a coroutine; the stream carries the steps of all of them.
"""

import argparse
import asyncio
import time

import attnd
import numpy as np


def feed_forward(x):
    """The client's part of a layer; a toy that keeps the rows' scale, [rows, d_model]."""
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6)


async def micro_batch(client, stream, model, number, arguments):
    """Decodes tokens for its own sessions, one layer after the other."""
    random = np.random.default_rng(number)
    sessions = [await client.create_session() for _ in range(arguments.sessions)]
    for _ in range(arguments.tokens):
        x = random.standard_normal((len(sessions), model.d_model)).astype(np.float32)
        for layer in range(model.num_layers):
            step = await stream.submit_decode(layer, sessions, feed_forward(x), timeout=30)
            x = x + (await step).raise_for_error().output
    for session in sessions:
        await session.close()


async def run(arguments):
    # Sessions that share a stream share an affinity key: one per worker.
    async with attnd.AsyncClient(arguments.target, affinity_key="example-worker") as client:
        model = await client.model()
        start = time.perf_counter()
        async with await client.steps() as stream:
            numbers = range(arguments.batches)
            await asyncio.gather(
                *(micro_batch(client, stream, model, number, arguments) for number in numbers)
            )
        tokens = arguments.batches * arguments.sessions * arguments.tokens
        seconds = time.perf_counter() - start
        print(f"{tokens} tokens through {model.num_layers} layers in {seconds:.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="127.0.0.1:8470")
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=4, help="in each micro-batch")
    parser.add_argument("--tokens", type=int, default=16)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
