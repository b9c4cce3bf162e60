"""PyTorch's attention on the card, beside the benchmark: a line of JSON for each row.

Usage: peers.py FILE. Each of SDPA's backends that takes the work is timed by CUDA's events; the
median of nine.
"""

import json
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def seconds(work):
    times = []
    for repeat in range(12):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(5):
            work()
        end.record()
        torch.cuda.synchronize()
        if repeat >= 3:
            times.append(begin.elapsed_time(end) / 5e3)
    return sorted(times)[len(times) // 2]


def numbers(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def rows():
    """(name, function of no arguments, FLOP, bytes) of each piece of work."""
    q, k, v = numbers(1, 128, 8192, 128), numbers(1, 8, 8192, 128), numbers(1, 8, 8192, 128)
    yield ("prefill 8 x 16 heads of 128, 8192 causal rows",
           lambda: scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
           2 * 128 * 256 * 8192 * 8193 / 2, None)
    for sessions in (1, 16, 64):
        q1 = numbers(sessions, 128, 1, 128)
        k1, v1 = numbers(sessions, 8, 4096, 128), numbers(sessions, 8, 4096, 128)
        yield (f"local decode 8 x 16 heads of 128, {sessions} x 4096 keys",
               lambda q1=q1, k1=k1, v1=v1: scaled_dot_product_attention(q1, k1, v1,
                                                                        enable_gqa=True),
               None, sessions * 4096 * 8 * 256 * 2)


def main():
    with open(sys.argv[1], "w") as out:
        for name, work, flop, size in rows():
            for backend, choice in BACKENDS.items():
                try:
                    with sdpa_kernel(choice):
                        time = seconds(work)
                except RuntimeError as error:
                    print(f"{name}, {backend}: {str(error).splitlines()[0]}")
                    continue
                value, unit = (flop / time / 1e12, "TFLOP/s") if flop else (size / time / 1e12, "TB/s")
                entry = {"name": f"PyTorch SDPA ({backend}): {name}", "us": time * 1e6,
                         "value": value, "unit": unit}
                print(json.dumps(entry), file=out, flush=True)


if __name__ == "__main__":
    main()
