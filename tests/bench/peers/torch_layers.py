"""Times PyTorch on the CPU: prints JSON, a median in ms a case.

Usage: torch_layers.py THREADS CASE...   decode:KEYS is SDPA with grouped heads (one token, 128/8/128, float32),
prefill:ROWS the same over ROWS causal rows, mla:KEYS a straight absorbed MLA decode (128 heads, 8 rope keys of 64,
latent 512, float32): scores by two products, a softmax, and the weighted latents.
"""

import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

HEADS, KV_HEADS, WIDTH, LATENT, ROPE = 128, 8, 128, 512, 64


def grouped(rows, keys):
    query = torch.randn(1, HEADS, rows, WIDTH)
    key, value = torch.randn(2, 1, KV_HEADS, keys, WIDTH)
    causal = rows > 1
    return lambda: F.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)


def latent(keys):
    query, rope_query = torch.randn(HEADS, LATENT), torch.randn(KV_HEADS, HEADS // KV_HEADS, ROPE)
    cache, rope = torch.randn(keys, LATENT), torch.randn(KV_HEADS, keys, ROPE)

    def run():
        scores = query @ cache.T
        scores += (rope_query @ rope.transpose(1, 2)).reshape(HEADS, keys)
        return torch.softmax(scores * 0.05, -1) @ cache

    return run


def measure(case, threads):
    kind, size = case.split(":")
    size = int(size)
    run = {"decode": lambda: grouped(1, size), "prefill": lambda: grouped(size, size),
           "mla": lambda: latent(size)}[kind]()  # fmt: skip
    clock = time.process_time if threads == 1 else time.perf_counter
    with torch.inference_mode():
        run()
        times = []
        while sum(times) < 0.5 or len(times) < 3:
            begin = clock()
            run()
            times.append(clock() - begin)
    return statistics.median(times) * 1e3


def main():
    threads = int(sys.argv[1])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    print(json.dumps({case: measure(case, threads) for case in sys.argv[2:]}))


if __name__ == "__main__":
    main()
