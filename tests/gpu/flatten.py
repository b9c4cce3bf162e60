"""The golden cases as one plain text and one file of float32, with Python's standard library alone:
what golden_check.cc reads. A line each in golden.txt:

  model NAME d_model heads_q heads_kv d_head d_rope d_latent d_query window scale_local scale_global
  theta local|global N VALUE...       radians per position of each pair, as hexadecimal floats
  layer L local|global
  weight NAME OUT IN OFFSET           of the layer above; offsets count floats of golden.bin
  case PREFIX ROWS X_OFFSET Y_OFFSET  of the layer above; x and y [ROWS][d_model]
"""

import json
import math
import pathlib
import re
import struct

MODELS = ("apex1_tiny", "large_shape", "mha", "mqa_yarn", "odd", "small_shape", "yarn_mid")


def read_safetensors(path):
    """{name: (shape, bytes)} of a float32 file."""
    raw = path.read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: {name} is {entry['dtype']}, expected F32")
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        tensors[name] = (entry["shape"], raw[begin:end])
    return tensors


def read_config(path):
    """The keys of a model.yaml, both sections in one dict. Handles only such flat files."""
    config = {"rope_attn_factor": False}
    for line in path.read_text().splitlines():
        key, _, text = (part.strip() for part in line.partition(":"))
        if text:
            config[key] = text == "true" if text in ("true", "false") else float(text)
    return config


def frequencies(config, width):
    """The angle per position of each pair, with APEX-1's form of YaRN."""
    rho = config["rope_scaling"]
    result = []
    for i in range(int(width) // 2):
        theta = config["rope_base"] ** (-2.0 * i / width)
        wavelength = 2 * math.pi / theta
        if rho != 1 and wavelength >= 32:
            ramp = (wavelength - 1) / (rho - 1)
            theta = theta / rho if wavelength > rho else theta / (ramp * rho + 1 - ramp)
        result.append(theta)
    return result


def is_global(config, layer):
    return layer % config["global_layer_freq"] == config["global_layer_freq"] - 1


def scale(config, width):
    factor = 1.0
    if config["rope_attn_factor"] and config["rope_scaling"] > 1:
        factor = 0.1 * math.log(config["rope_scaling"]) + 1
    return factor / math.sqrt(width)


def flatten_model(name, folder, lines, blob):
    """Appends a model's lines and floats."""
    config = read_config(folder / "model.yaml")
    weights = read_safetensors(folder / "model.safetensors")
    cases = read_safetensors(folder / "cases.safetensors")

    def put(tensor):
        offset = len(blob) // 4
        blob.extend(tensor[1])
        return offset

    sizes = [int(config[key]) for key in (
        "d_model", "n_heads_q", "n_heads_kv", "d_head", "d_head_rope", "d_kv_compressed",
        "d_q_compressed", "local_window")]
    scales = [scale(config, config["d_head"]),
              scale(config, config["d_head"] + config["d_head_rope"])]
    lines.append(" ".join(["model", name, *map(str, sizes), *(s.hex() for s in scales)]))
    for kind, width in (("local", config["d_head"]), ("global", config["d_head_rope"])):
        theta = frequencies(config, width)
        lines.append(" ".join(["theta", kind, str(len(theta)), *(t.hex() for t in theta)]))
    found = sorted(m.groups() for m in map(
        re.compile(r"layer(\d+)\.len(\d+)\.prefix(\d+)\.x").fullmatch, cases) if m)
    if not found:
        raise ValueError(f"no cases in {folder}")
    for layer in sorted({int(entry[0]) for entry in found}):
        lines.append(f"layer {layer} {'global' if is_global(config, layer) else 'local'}")
        prefix = f"blocks.{layer}.attn."
        for key in sorted(weights):
            if key.startswith(prefix):
                out, inputs = weights[key][0]
                short = key[len(prefix) :].removesuffix(".weight")
                lines.append(f"weight {short} {out} {inputs} {put(weights[key])}")
        for own, length, rows in found:
            if int(own) == layer:
                case = f"layer{own}.len{length}.prefix{rows}."
                x, y = put(cases[case + "x"]), put(cases[case + "y"])
                lines.append(f"case {rows} {length} {x} {y}")


def flatten(golden, out, models=MODELS):
    """Writes golden.txt and golden.bin to the folder `out`."""
    lines, blob = [], bytearray()
    for name in models:
        flatten_model(name, golden / name, lines, blob)
    out.mkdir(parents=True, exist_ok=True)
    (out / "golden.txt").write_text("\n".join(lines) + "\n")
    (out / "golden.bin").write_bytes(blob)
    return sum(line.startswith("case ") for line in lines)


if __name__ == "__main__":
    import sys

    if len(sys.argv) < 3:
        sys.exit("usage: flatten.py GOLDEN_FOLDER OUT_FOLDER [MODEL...]")
    flatten(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:] or MODELS)
