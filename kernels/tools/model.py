"""The float64 model: the references of device/ put together as qwen35.md sections 2 to 4 say, a layer at a time.

It shares the config and the table of tensors with the engine, and no arithmetic: angles, Q4_0 rounding and the order of
operations are its own.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from kernels.device import attention, gdn, gemv, rms_norm, rope, sample, swiglu
from kernels.engine.config import GDN, Config
from kernels.engine.weights import EMBEDDING, HEAD, Q4, Packed, Tensor, Weights, tensors

Q4_BLOCK = 32
Planes = dict[str, np.ndarray]


class Rounded:
    """A checkpoint's f32 weights with the matrices of the table rounded to Q4_0, by the rule and not by a layout."""

    form = Q4

    def __init__(self, weights: Weights):
        self._weights, self.origin = weights, f"{weights.origin}, rounded to Q4_0"

    def read(self, tensor: Tensor) -> Any:
        value = self._weights.read(tensor)
        return q4_0(value) if tensor.form == Q4 and isinstance(value, np.ndarray) else value


def q4_0(matrix: np.ndarray) -> np.ndarray:
    """What is left of a f32 matrix in blocks of 4 bits; qwen35.md section 8."""
    rows, cols = matrix.shape
    padded = np.pad(matrix, ((0, 0), (0, -cols % Q4_BLOCK))).reshape(-1, Q4_BLOCK)
    m = padded[np.arange(len(padded)), np.argmax(np.abs(padded), axis=1)]
    d = m / np.float32(-8)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    steps = np.minimum(np.trunc(padded * inverse[:, None] + np.float32(8.5)), 15) - 8
    values = steps * d.astype(np.float16).astype(np.float64)[:, None]
    return np.asarray(values.reshape(rows, -1)[:, :cols])


def run(config: Config, weights: Weights, tokens: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, Planes]:
    """(hidden [T][hidden] after the final norm, logits [T][vocab], planes by name), all float64 but the cursor."""
    groups = _groups(config, weights)
    embedding = next(groups)[EMBEDDING]
    x = np.stack([sample.embed(embedding, token) for token in tokens])
    planes: Planes = {}
    for i, kind in enumerate(config.kinds):
        w = next(groups)
        normed = rms_norm.rms_norm(x, w["input_layernorm.weight"], config.eps)
        mixer = _gdn if kind == GDN else _attention
        mixed, found = mixer(config, w, normed)
        planes |= {f"layers.{i}.{name}": plane for name, plane in found.items()}
        x = swiglu.add(mixed, x)
        normed = rms_norm.rms_norm(x, w["post_attention_layernorm.weight"], config.eps)
        gate, up = (_times(w[f"mlp.{name}_proj.weight"], normed) for name in ("gate", "up"))
        x = swiglu.add(_times(w["mlp.down_proj.weight"], swiglu.swiglu(gate, up)), x)
    end = next(groups)
    hidden = rms_norm.rms_norm(x, end["norm.weight"], config.eps)
    planes["cursor"] = np.array([len(tokens)], dtype=np.int32)
    return hidden, _times(embedding if config.tied else end[HEAD], hidden), planes


def _groups(config: Config, weights: Weights) -> Iterator[dict[str, np.ndarray]]:
    """The embedding, then the tensors of each layer, then the rest; read once, in the table's order."""

    def layer(tensor: Tensor) -> str:
        return ".".join(tensor.name.split(".")[:2]) + "." if tensor.name.startswith("layers.") else ""

    for prefix, group in groupby(tensors(config), key=layer):
        yield {tensor.name.removeprefix(prefix): _matrix(weights.read(tensor)) for tensor in group}


def _matrix(value: np.ndarray | Packed) -> np.ndarray:
    if isinstance(value, Packed):
        return gemv.dequantise(value.words, value.scales, value.cols)
    return value.astype(np.float64)


def _times(weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    """x [T][cols] to [T][rows]."""
    return gemv.gemv(weight, x.T).T


def _gdn(c: Config, w: dict[str, np.ndarray], normed: np.ndarray) -> tuple[np.ndarray, Planes]:
    u, z, a, b = (_times(w[f"linear_attn.in_proj_{name}.weight"], normed) for name in ("qkv", "z", "a", "b"))
    taps = w["linear_attn.conv1d.weight"][:, 0, :].T
    history = np.zeros((c.conv_kernel - 1, c.channels))
    state = np.zeros((c.value_heads, c.key_dim, c.value_dim))
    gated = np.empty_like(z)
    for t in range(len(normed)):
        y, history = gdn.conv(u[t], history, taps)
        q, k = gdn.qk_norm(y, c.key_heads, c.key_dim)
        v = y[2 * c.key_width :].reshape(c.value_heads, c.value_dim)
        decay, beta = gdn.gates(a[t], b[t], w["linear_attn.A_log"], w["linear_attn.dt_bias"])
        o, state = gdn.delta(q, k, v, decay, beta, state)
        gated[t] = gdn.gate_norm(o, z[t].reshape(o.shape), w["linear_attn.norm.weight"], c.eps).ravel()
    return _times(w["linear_attn.out_proj.weight"], gated), {"state": state, "history": history}


def _attention(c: Config, w: dict[str, np.ndarray], normed: np.ndarray) -> tuple[np.ndarray, Planes]:
    qg, k_raw, v_raw = (_times(w[f"self_attn.{name}_proj.weight"], normed) for name in "qkv")
    gains = w["self_attn.q_norm.weight"], w["self_attn.k_norm.weight"]
    cos, sin = angles(c.rope_theta, c.rotary, len(normed))
    keys = values = np.empty((0, c.kv_heads, c.head_dim))
    mixed = np.empty((len(normed), c.q_width))
    for t in range(len(normed)):
        token = qg[t].reshape(c.heads, 2, c.head_dim)
        q, k = rope.qk_prep(token, k_raw[t].reshape(c.kv_heads, c.head_dim), *gains, cos[t], sin[t], c.eps)
        keys, values = attention.append(keys, k), attention.append(values, v_raw[t].reshape(k.shape))
        mixed[t] = attention.attention(q, token[:, 1], keys, values, c.head_dim**-0.5).ravel()
    planes = {"keys": keys.reshape(-1, c.kv_width), "values": values.reshape(-1, c.kv_width)}
    return _times(w["self_attn.o_proj.weight"], mixed), planes


def angles(theta: float, rotary: int, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """(cos, sin) float64 [positions][rotary/2] of the f32 angles that qwen35.md section 4.1 fixes."""
    exponents = np.arange(0, rotary, 2, dtype=np.float32) / np.float32(rotary)
    frequencies = np.float32(1) / np.array([theta ** float(e) for e in exponents]).astype(np.float32)
    phi = (np.arange(positions, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    return np.cos(phi), np.sin(phi)
