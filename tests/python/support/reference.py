"""One layer of the model in numpy float64, as plainly as it can be written.

Weights are [out, in] and used as x @ W.T; the query of row i sees the keys of an interval.
"""

import numpy as np

_DEFAULTS = {"rope_attn_factor": False}


def read_config(path):
    """The keys of a model.yaml, both sections in one dict. Handles only such flat files."""
    config = dict(_DEFAULTS)
    for line in path.read_text().splitlines():
        key, _, text = (part.strip() for part in line.partition(":"))
        if text:
            config[key] = text == "true" if text in ("true", "false") else float(text)
    return {key: int(v) if isinstance(v, float) and v == int(v) else v for key, v in config.items()}


def is_global(config, layer):
    frequency = config["global_layer_freq"]
    return layer % frequency == frequency - 1


def frequencies(config, width):
    """The angle per position of each pair, with APEX-1's form of YaRN: [width / 2]."""
    theta = float(config["rope_base"]) ** (-2.0 * np.arange(width // 2) / width)
    rho = float(config["rope_scaling"])
    if rho == 1:
        return theta
    wavelength = 2 * np.pi / theta
    ramp = (wavelength - 1) / (rho - 1)
    between = theta / (ramp * rho + 1 - ramp)
    return np.where(wavelength < 32, theta, np.where(wavelength > rho, theta / rho, between))


def rotate(config, x):
    """Interleaved pairs of [rows, heads, width] by row times frequency."""
    angle = np.arange(len(x))[:, None, None] * frequencies(config, x.shape[-1])
    even, odd = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = even * np.cos(angle) - odd * np.sin(angle)
    out[..., 1::2] = odd * np.cos(angle) + even * np.sin(angle)
    return out


def visible(rows, prefix, window):
    """[rows, rows] of booleans: whether query i sees key j; window None on global layers."""
    i, j = np.arange(rows)[:, None], np.arange(rows)[None, :]
    causal = (j <= i) if window is None else (j <= i) & (i - j < window)
    return np.where(i < prefix, j < prefix, causal)


def attend(q, k, v, mask, scale):
    """[rows, heads, width] each; a group of query heads shares a key and value head."""
    group = q.shape[1] // k.shape[1]
    heads = []
    for head in range(q.shape[1]):
        score = q[:, head] @ k[:, head // group].T * scale
        score = np.where(mask, score, -np.inf)
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        heads.append(weight @ v[:, head // group] / weight.sum(axis=1, keepdims=True))
    return np.concatenate(heads, axis=1)


def forward(config, weights, layer, x, prefix):
    """The outputs of all rows of one layer, x [rows, d_model], positions from 0."""
    x = x.astype(np.float64)
    rows, width = len(x), config["d_head"]
    if prefix > rows:  # the rows of an unfinished prefix have no answer yet
        prefix = rows

    def project(name, value, head_width=None):
        out = value @ weights[f"blocks.{layer}.attn.{name}.weight"].astype(np.float64).T
        return out if head_width is None else out.reshape(rows, -1, head_width)

    if is_global(config, layer):
        rope = config["d_head_rope"]
        latent = project("W_DKV", x)
        k_rope = rotate(config, project("W_KR", x, rope))
        q_rope = rotate(config, project("W_QR", x, rope))
        k = np.concatenate([project("W_UK", latent, width), k_rope], axis=2)
        v = project("W_UV", latent, width)
        q = np.concatenate([project("W_UQ", project("W_DQ", x), width), q_rope], axis=2)
        mask = visible(rows, prefix, None)
    else:
        q = rotate(config, project("W_Q", x, width))
        k = rotate(config, project("W_K", x, width))
        v = project("W_V", x, width)
        mask = visible(rows, prefix, config["local_window"])
    scale = q.shape[2] ** -0.5
    if config["rope_attn_factor"] and config["rope_scaling"] > 1:
        scale *= 0.1 * np.log(config["rope_scaling"]) + 1
    return project("W_O", attend(q, k, v, mask, scale))
