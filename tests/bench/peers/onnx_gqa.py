"""Times ONNX Runtime's GroupQueryAttention on the CPU: prints JSON, a median in ms a case.

Usage: onnx_gqa.py THREADS CASE...   A case is decode:KEYS (one token, 128/8/128, float32, past and
present share their buffers) or prefill:ROWS[:WINDOW] (causal, from an empty cache).
"""

import json
import statistics
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

HEADS, KV_HEADS, WIDTH = 128, 8, 128


def model(window):
    """One node; the names of its inputs are the operator's own."""

    def tensor(name, kind, shape):
        return helper.make_tensor_value_info(name, kind, shape)

    names = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length"]
    attributes = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
    if window:
        attributes["local_window_size"] = window
    node = helper.make_node(
        "GroupQueryAttention", names, ["output", "present_key", "present_value"],
        domain="com.microsoft", **attributes)  # fmt: skip
    f32, i32 = TensorProto.FLOAT, TensorProto.INT32
    past = [1, KV_HEADS, "past", WIDTH]
    inputs = [
        tensor("query", f32, [1, "rows", HEADS * WIDTH]), tensor("key", f32, [1, "rows", KV_HEADS * WIDTH]),
        tensor("value", f32, [1, "rows", KV_HEADS * WIDTH]), tensor("past_key", f32, past),
        tensor("past_value", f32, past), tensor("seqlens_k", i32, [1]),
        tensor("total_sequence_length", i32, []),
    ]  # fmt: skip
    present = [1, KV_HEADS, "present", WIDTH]
    outputs = [
        tensor("output", f32, [1, "rows", HEADS * WIDTH]), tensor("present_key", f32, present),
        tensor("present_value", f32, present),
    ]  # fmt: skip
    graph = helper.make_graph([node], "gqa", inputs, outputs)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=domains, ir_version=9)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def bound(session, history, rows):
    """An IO binding whose present buffers are its past buffers."""
    random = np.random.default_rng(1)
    total = history + rows

    def values(*shape):
        return onnxruntime.OrtValue.ortvalue_from_numpy(random.standard_normal(shape, dtype=np.float32))

    binding = session.io_binding()
    binding.bind_ortvalue_input("query", values(1, rows, HEADS * WIDTH))
    for name in ("key", "value"):
        binding.bind_ortvalue_input(name, values(1, rows, KV_HEADS * WIDTH))
        cache = values(1, KV_HEADS, total, WIDTH)
        binding.bind_ortvalue_input(f"past_{name}", cache)
        binding.bind_ortvalue_output(f"present_{name}", cache)
    for name, value in (("seqlens_k", [total - 1]), ("total_sequence_length", total)):
        data = np.array(value, dtype=np.int32)
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(data))
    binding.bind_output("output")
    return binding


def measure(case, threads):
    kind, rows, *window = case.split(":")
    history, rows = (int(rows) - 1, 1) if kind == "decode" else (0, int(rows))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model(int(window[0]) if window else 0), options, providers=["CPUExecutionProvider"])  # fmt: skip
    binding = bound(session, history, rows)
    clock = time.process_time if threads == 1 else time.perf_counter
    session.run_with_iobinding(binding)
    times = []
    while sum(times) < 0.5 or len(times) < 3:
        begin = clock()
        session.run_with_iobinding(binding)
        times.append(clock() - begin)
    return statistics.median(times) * 1e3


def main():
    threads = int(sys.argv[1])
    print(json.dumps({case: measure(case, threads) for case in sys.argv[2:]}))


if __name__ == "__main__":
    main()
