"""The rows of the benchmark: what is measured, against which ceiling, and the budget."""

import dataclasses
from typing import Callable

from . import beside_rows, idle_rows, server_rows

GIGA = 1e9
REACH = 0.9  # of a roofline; no kernel gets more


@dataclasses.dataclass
class Row:
    name: str
    what: str
    measure: Callable

    def result(self, bench):
        found = self.measure(bench)
        verdict = found.pop("verdict", None)
        if verdict is None:
            verdict = "ok" if found.pop("ok") else "MISSED"
        return {"name": self.name, "what": self.what, "verdict": verdict, **found}


def percent(share):
    return f"{100 * share:.0f} %"


def roofline(figures, name):
    """(share of the lower roof, which roof, its rate) of a benchmark."""
    flop, read = figures["ceiling_fma"]["flop"], figures["ceiling_read"]["bytes"]
    of_flop, of_read = figures[name]["flop"] / flop, figures[name]["bytes"] / read
    if of_flop >= of_read:
        return of_flop, "peak", f"peak {flop / GIGA:.0f} GFLOP/s"
    return of_read, "read", f"read {read / GIGA:.0f} GB/s"


def share_of(program, name, least, threads=1, roof=None):
    """At least `least` of the roofline, or of the one roof named."""

    def measure(bench):
        figures = bench.medians(program, [name], threads)
        share, which, ceiling = roofline(figures, name)
        if roof == "peak":
            which, share = "peak", figures[name]["flop"] / figures["ceiling_fma"]["flop"]
            ceiling = f"peak {figures['ceiling_fma']['flop'] / GIGA:.0f} GFLOP/s"
        if roof == "read":
            which, share = "read", figures[name]["bytes"] / figures["ceiling_read"]["bytes"]
            ceiling = f"read {figures['ceiling_read']['bytes'] / GIGA:.0f} GB/s"
        rate = (f"{figures[name]['flop'] / GIGA:.1f} GFLOP/s" if which == "peak"
                else f"{figures[name]['bytes'] / GIGA:.1f} GB/s")  # fmt: skip
        return {"measured": f"{figures[name]['ms']:.2f} ms, {rate}", "ceiling": ceiling,
                "share": percent(share), "budget": f">= {percent(least)}", "ok": share >= least,
                "value": share}  # fmt: skip

    return measure


def faster_than(script, case, program, name, least, who, threads=1):
    """At least `least` times as fast as a peer, in turns. A miss says where that is more than
    the machine can give."""

    def measure(bench):
        figures, theirs = bench.against(script, case, program, name, threads)
        budget = f">= {least:g} x {who}"
        if theirs is None:
            return {"verdict": "not measured", "budget": budget, "measured": f"{figures[name]['ms']:.2f} ms",
                    "note": f"{who} cannot be imported by --peer_python"}  # fmt: skip
        ratio = theirs / figures[name]["ms"]
        share, _, ceiling = roofline(figures, name)
        found = {"measured": f"{figures[name]['ms']:.2f} ms, {who} {theirs:.2f} ms", "ceiling": ceiling,
                 "share": f"{ratio:.1f} x", "budget": budget, "value": ratio}  # fmt: skip
        found["ok"] = ratio >= least
        if not found["ok"] and least * share / ratio > REACH:
            found["note"] = (f"{who} is at {percent(share / ratio)} of the roofline here: {least:g} times as fast "
                             f"would be {percent(least * share / ratio)}; ours is at {percent(share)}")  # fmt: skip
        return found

    return measure


def ratio_of(program, name, other, least=None, most=None, unit="ms", what="", per=(1, 1), threads=1):
    """name / other of a figure of one run, within a bound. `per` divides them first."""

    def measure(bench):
        figures = bench.medians(program, [name, other], threads)
        ratio = (figures[name][unit] / per[0]) / (figures[other][unit] / per[1])
        ok = (least is None or ratio >= least) and (most is None or ratio <= most)
        bound = f">= {least:g} x" if least is not None else f"<= {most:g} x"
        return {"measured": f"{figures[name]['ms']:.2f} ms", "ceiling": f"{other} {figures[other]['ms']:.2f} ms",
                "share": f"{ratio:.2f} x", "budget": f"{bound} {what}".strip(), "ok": ok,
                "value": ratio}  # fmt: skip

    return measure


def window_saving(program, windowed, whole, fewer, least):
    """The part of the FLOP that a window saves that the time shows."""

    def measure(bench):
        figures = bench.medians(program, [windowed, whole])
        saved = figures[whole]["ms"] / figures[windowed]["ms"]
        return {"measured": f"{figures[windowed]['ms']:.1f} ms", "ceiling": f"{fewer:.2f} x fewer FLOP",
                "share": f"{saved:.2f} x faster", "budget": f">= {least:g} of the FLOP ratio",
                "ok": saved >= least * fewer, "value": saved / fewer}  # fmt: skip

    return measure


def cheaper_form(rows, least=0.55):
    """The form of MLA that the engine takes for so many rows, as a share of the cheaper one's roofline."""

    def measure(bench):
        names = [f"latent_rows/{rows}x4096/bf16", f"expanded_rows/{rows}x4096/bf16"]
        figures = bench.medians("bench_kernels", names)
        peak = figures["ceiling_fma"]["flop"]
        ideal = {name: figures[name]["flop"] * figures[name]["ms"] / peak for name in names}
        taken = min(names, key=lambda name: ideal[name])
        share = min(ideal.values()) / figures[taken]["ms"]
        return {"measured": f"{taken.split('_')[0]} {figures[taken]['ms']:.1f} ms",
                "ceiling": f"{min(ideal.values()):.1f} ms at peak", "share": percent(share),
                "budget": f">= {percent(least)}", "ok": share >= least, "value": share,
                "note": ", ".join(f"{n.split('_')[0]} {figures[n]['ms']:.1f} ms" for n in names)}  # fmt: skip

    return measure


def hand_over(bench):
    """Not judged: what a second thread costs."""
    names = ["pool_handover/spinning", "pool_handover/asleep"]
    figures = bench.medians(KERNELS, names, threads=2)
    spinning, asleep = (1e3 * figures[name]["ms"] for name in names)
    return {"measured": f"{spinning:.1f} us", "ceiling": f"asleep {asleep:.0f} us", "verdict": "for information",
            "value": spinning}  # fmt: skip


KERNELS, ENGINE = "bench_kernels", "bench_engine"


def window_pairs(rows, window):
    return sum(min(row + 1, window) for row in range(rows))


ROWS = [
    Row("decode_local_f32", "GQA 128/8/128, one token, 4096 keys", share_of(KERNELS, "local_decode/4096/f32", 0.6)),
    Row("decode_local_bf16", "the same, bf16 cache", share_of(KERNELS, "local_decode/4096/bf16", 0.6)),
    Row("decode_local_8192", "the same, 8192 keys, bf16", share_of(KERNELS, "local_decode/8192/bf16", 0.6)),
    Row("decode_local_onnx", "the same, f32, against ONNX Runtime",
        faster_than("onnx_gqa.py", "decode:4096", KERNELS, "local_decode/4096/f32", 6, "ONNX Runtime")),
    Row("decode_local_torch", "the same, f32, against PyTorch SDPA",
        faster_than("torch_layers.py", "decode:4096", KERNELS, "local_decode/4096/f32", 1, "PyTorch SDPA")),
    Row("decode_local_openblas", "the same, f32, against sgemm and softmax a KV head",
        ratio_of(KERNELS, "openblas_gqa/4096", "local_decode/4096/f32", least=1, what="OpenBLAS")),
    Row("decode_local_flat", "one token, window 4096, history 16 windows", ratio_of(
        KERNELS, "local_decode_far/4096/bf16", "local_decode/4096/bf16", most=1.03, what="one window")),
    Row("decode_local_ragged", "1 x 32768 and 15 x 500 keys in one batch, 2 threads",
        share_of(KERNELS, "local_decode_ragged/bf16", 0.5, threads=2)),
    Row("decode_absorbed_4096", "MLA 128/8 heads, 512 + 64, absorbed, bf16",
        share_of(KERNELS, "latent_decode/4096/bf16", 0.65, roof="peak")),
    Row("decode_absorbed_32768", "the same, 32768 keys",
        share_of(KERNELS, "latent_decode/32768/bf16", 0.65, roof="peak")),
    Row("decode_absorbed_linear", "32768 keys against 4096", ratio_of(
        KERNELS, "latent_decode/32768/bf16", "latent_decode/4096/bf16", most=1.1, per=(8, 1), what="a key")),
    Row("decode_absorbed_shared", "MLA 128/1 heads (one rope key), 4096 keys",
        share_of(KERNELS, "latent_decode_shared_rope/4096/bf16", 0.65, roof="peak")),
    Row("decode_absorbed_torch", "128/8 heads, 4096 keys, f32, against straight PyTorch",
        faster_than("torch_layers.py", "mla:4096", KERNELS, "latent_decode/4096/f32", 3, "PyTorch")),
    Row("decode_shadow", "the same, bf16 latents, over a shadow of float32 keys and values", ratio_of(
        KERNELS, "latent_decode/4096/bf16", "shadow_decode/4096/bf16", least=1.5, what="the shadow's time")),
    Row("decode_shadow_f32", "the same, f32 latents", ratio_of(
        KERNELS, "latent_decode/4096/f32", "shadow_decode/4096/f32", least=1.5, what="the shadow's time")),
    Row("rows_4_global", "4 rows of a global layer, 4096 keys, the cheaper form", cheaper_form(4)),
    Row("rows_16_global", "16 rows, the cheaper form", cheaper_form(16)),
    Row("prefill_local_512", "GQA 128/8/128, 512 causal rows, bf16",
        share_of(KERNELS, "local_prefill/512/bf16", 0.65, roof="peak")),
    Row("prefill_local_2048", "the same, 2048 rows", share_of(KERNELS, "local_prefill/2048/bf16", 0.65, roof="peak")),
    Row("prefill_local_window", "2048 rows, window 512", window_saving(
        KERNELS, "local_prefill_window/2048w512/bf16", "local_prefill/2048/bf16",
        window_pairs(2048, 2048) / window_pairs(2048, 512), 0.85)),
    Row("prefill_local_onnx", "512 causal rows, f32, against ONNX Runtime",
        faster_than("onnx_gqa.py", "prefill:512", KERNELS, "local_prefill/512/f32", 1.5, "ONNX Runtime")),
    Row("prefill_expanded", "MLA expanded, 512 rows after 512, bf16",
        share_of(KERNELS, "expanded_prefill/512x1024/bf16", 0.65, roof="peak")),
    Row("layer_medium_local", "a medium layer whole, 512 rows",
        share_of(ENGINE, "medium_prefill_local/512", 0.6, roof="peak")),
    Row("layer_medium_global", "the same, global", share_of(ENGINE, "medium_prefill_global/512", 0.6, roof="peak")),
    Row("layer_large_local", "a large layer whole, 512 rows, in the default chunks",
        share_of(ENGINE, "large_prefill_local/512", 0.6, roof="peak")),
    Row("layer_large_global", "the same, global", share_of(ENGINE, "large_prefill_global/512", 0.6, roof="peak")),
    Row("project_1_f32", "one row by 4096 x 4096, f32 weights",
        share_of(KERNELS, "projection/1/f32", 0.85, roof="read")),
    Row("project_1_bf16", "the same, bf16 weights", share_of(KERNELS, "projection/1/bf16", 0.85, roof="read")),
    Row("project_128", "128 rows, bf16", share_of(KERNELS, "projection/128/bf16", 0.65, roof="peak")),
    Row("project_512", "512 rows, bf16", share_of(KERNELS, "projection/512/bf16", 0.65, roof="peak")),
    Row("project_openblas", "512 rows, f32, against sgemm", ratio_of(
        KERNELS, "openblas_sgemm/512", "projection/512/f32", least=0.9, what="sgemm")),
    Row("batching", "16 sessions of 64 tokens in a Decode against one, medium", ratio_of(
        ENGINE, "medium_decode/16", "medium_decode/1", most=0.35, per=(16, 1), what="a token")),
    Row("pool_handover", "an operation of nothing on two threads, in a row and after a pause", hand_over),
    Row("wire_decode", "one row on tiny: a call's time beyond computing", server_rows.wire("decode", "apex1-tiny", 2000, 1.15)),
    Row("wire_prefill", "1 MiB (512 rows) on small: likewise", server_rows.wire("prefill", "apex1-small", 200, 0.6)),
    Row("throughput", "64 sessions on one stream, medium", server_rows.throughput(0.85)),
    Row("prefill_beside", "16 sessions of medium decode while one prefills 32768 rows, a local and a global layer",
        beside_rows.prefill_beside_decodes(32768)),
    Row("memory", "10,000 idle sessions of 64 rows in every layer, small", idle_rows.of_idle(idle_rows.memory)),
    Row("idle_reaper", "the server meanwhile, nobody calling", idle_rows.of_idle(idle_rows.processor)),
    Row("expiry", "all expire at once: until they and their memory are gone", idle_rows.of_idle(idle_rows.expiry)),
    Row("expiry_delay", "a session that decodes meanwhile", idle_rows.of_idle(idle_rows.delay(20))),
    Row("start", "small: from exec to the ready line", server_rows.start(2)),
]  # fmt: skip
