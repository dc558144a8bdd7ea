"""One step of a model over M rows: which kernels run on which buffers, in order. Bound once, run once a step.

Buffers never move, so a step is a list of bound launches; what changes from step to step, the tokens and the cursor,
lies in device memory. Formulas and their order: reference qwen35.md sections 2 to 4. Row m of a buffer begins m widths
on. Where a kernel has no rows of its own it is launched once a row, in their order.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .config import GDN, Config
from .device import THREADS_A_BLOCK, WARPS_A_BLOCK, Device, Launch
from .errors import Refused
from .r_table import instance, weight_rows
from .state import scratch_stride
from .weights import EMBEDDING, HEAD, Q4, Tensor, chunks


@dataclass(frozen=True, slots=True)
class Model:
    """What every step of an engine works on, placed on the device. Buffers by name; `form` as the weights came in."""

    device: Device[Any]
    config: Config
    capacity: int
    form: str
    tensors: Mapping[str, Tensor]
    weights: Mapping[str, tuple[Any, ...]]
    state: Mapping[str, Any]
    cursor: Any
    cos: Any
    sin: Any
    graphs: bool  # whether a step runs as one graph

    @property
    def head(self) -> str:
        """The matrix that makes logits."""
        return EMBEDDING if self.config.tied else HEAD

    @property
    def score_stride(self) -> int:
        """Floats of attention's scratch a head and row."""
        return scratch_stride(self.capacity)

    def packed(self, tensor: Tensor, rows: int) -> bool:
        """Whether a tensor is q4. Raises Refused where rows meet a matrix of a q4 model that is not: none is proved."""
        packed = len(self.weights[tensor.name]) == 2
        if rows > 1 and self.form == Q4 and tensor.form == Q4 and not packed:
            raise Refused(
                "forward_rows", f"{tensor.name} is not q4", "pack it, or use single tokens", reason="q4-missing"
            )
        return packed


class Step:
    """The launches of one step, what runs them, and those that choose a token of every row.

    `buffers` are scratch() of state.py, each [M][width] or longer, and int32 token [M] and greedy [M].
    """

    def __init__(self, model: Model, buffers: Mapping[str, Any], rows: int):
        self._model, self._buffers, self._rows = model, buffers, rows
        self._bind, self._eps = model.device.bind, np.float32(model.config.eps)
        self.launches = list(self._launched())
        self.program = [model.device.captured(self.launches)] if model.graphs else self.launches
        vocab = model.config.vocab
        places = [(self._row("logits", m, vocab), self._row("greedy", m, 1)) for m in range(rows)]
        self.choice = [self._bind("argmax", 1, logits, greedy, vocab) for logits, greedy in places]

    def _launched(self) -> Iterator[Launch]:
        yield from self._embedding()
        for i, kind in enumerate(self._model.config.kinds):
            layer = f"layers.{i}."
            yield self._norm("x", layer + "input_layernorm.weight", "normed")
            yield from self._gdn(layer) if kind == GDN else self._attention(layer)
            yield self._add("mixed", "x")
            yield self._norm("x", layer + "post_attention_layernorm.weight", "normed")
            yield from self._mlp(layer)
            yield self._add("mixed", "x")
        yield self._norm("x", "norm.weight", "hidden")
        yield from self._matrix(self._model.head, "hidden", "logits")

    def _gdn(self, layer: str) -> Iterator[Launch]:
        """normed to mixed through a Gated DeltaNet mixer; section 3. Its projections read W once for all rows."""
        yield from self._matrix(layer + "linear_attn.in_proj_qkv.weight", "normed", "u")
        yield from self._matrix(layer + "linear_attn.in_proj_z.weight", "normed", "z")
        for m in range(self._rows):
            yield from self._recurrence(layer, m)
        yield from self._matrix(layer + "linear_attn.out_proj.weight", "gated", "mixed")

    def _recurrence(self, layer: str, m: int) -> Iterator[Launch]:
        """u and z of row m to gated, by the kernels of one token: state and history advance in place, row after row."""
        c, bind = self._model.config, self._bind
        nk, nv, dk, dv = c.key_heads, c.value_heads, c.key_dim, c.value_dim
        state, history = (self._model.state[layer + name] for name in ("state", "history"))
        layer += "linear_attn."
        a_weight, b_weight = (self._plain(f"{layer}in_proj_{name}.weight") for name in "ab")
        rate, bias, taps = (self._plain(layer + name) for name in ("A_log", "dt_bias", "conv1d.weight"))
        gain, root = self._plain(layer + "norm.weight"), np.sqrt(np.float32(dk))
        normed, u, y = self._row("normed", m, c.hidden), self._row("u", m, c.channels), self._row("y", m, c.channels)
        q, k, v = self._row("gdn_q", m, c.key_width), self._row("gdn_k", m, c.key_width), y.after(2 * c.key_width)
        a, b, decay, beta = (self._row(name, m, nv) for name in ("a", "b", "decay", "beta"))
        o, z, gated = (self._row(name, m, c.value_width) for name in ("o", "z", "gated"))
        small, convolved = _blocks(2 * nv, WARPS_A_BLOCK), _blocks(c.channels, THREADS_A_BLOCK)
        yield bind("gemv_f32", small, a_weight, b_weight, normed, a, b, nv, nv, c.hidden)
        yield bind("gdn_conv", convolved, u, history, taps, y, c.channels, c.conv_kernel)
        yield bind("gdn_qk_norm", _blocks(2 * nk, WARPS_A_BLOCK), y, q, k, nk, dk, root)
        yield bind("gdn_gates", _blocks(nv, THREADS_A_BLOCK), a, b, rate, bias, decay, beta, nv)
        yield bind("gdn_delta", nv, q, k, v, decay, beta, state, o, nk, nv, dk, dv)
        yield bind("gdn_gate_norm", _blocks(nv, WARPS_A_BLOCK), o, z, gain, gated, nv, dv, self._eps)

    def _attention(self, layer: str) -> Iterator[Launch]:
        """normed to mixed through full attention; section 4."""
        c, s, bind, rows = self._model.config, self._buffers, self._bind, self._rows
        keys, values = (self._model.state[layer + name] for name in ("keys", "values"))
        layer += "self_attn."
        gains = (self._plain(layer + "q_norm.weight"), self._plain(layer + "k_norm.weight"))
        place = (self._model.cos, self._model.sin, self._model.cursor)
        heads = (c.heads, c.kv_heads, c.head_dim)
        stride, scale = self._model.score_stride, np.float32(1.0 / math.sqrt(c.head_dim))
        prepared = rows * _blocks(c.heads + c.kv_heads, WARPS_A_BLOCK)
        appended = rows * _blocks(c.kv_width, THREADS_A_BLOCK)
        cached = (keys, values, self._model.cursor)
        yield from self._matrix(layer + "q_proj.weight", "normed", "qg")
        yield from self._matrix(layer + "k_proj.weight", "normed", "k_raw")
        yield from self._matrix(layer + "v_proj.weight", "normed", "v")
        turned = (s["q"], s["k"])
        yield bind("qk_prep", prepared, s["qg"], s["k_raw"], *gains, *place, *turned, *heads, c.rotary, self._eps)
        yield bind("kv_append", appended, s["k"], s["v"], *cached, c.kv_width)
        seen = (s["q"], s["qg"], *cached, s["scores"], s["gated"])
        yield bind("attention", rows * c.heads, *seen, *heads, stride, scale)
        yield from self._matrix(layer + "o_proj.weight", "gated", "mixed")

    def _mlp(self, layer: str) -> Iterator[Launch]:
        """normed to mixed through the gated MLP."""
        s, size = self._buffers, self._rows * self._model.config.intermediate
        yield from self._matrix(layer + "mlp.gate_proj.weight", "normed", "gate")
        yield from self._matrix(layer + "mlp.up_proj.weight", "normed", "up")
        yield self._bind("swiglu", _blocks(size, THREADS_A_BLOCK), s["gate"], s["up"], s["act"], size)
        yield from self._matrix(layer + "mlp.down_proj.weight", "act", "mixed")

    def _embedding(self) -> Iterator[Launch]:
        weight, cols = self._model.weights[EMBEDDING], self._model.config.hidden
        packed = self._model.packed(self._model.tensors[EMBEDDING], self._rows)
        for m in range(self._rows):
            token, x = self._row("token", m, 1), self._row("x", m, cols)
            if packed:
                yield self._bind("embed_q4", _blocks(chunks(cols), WARPS_A_BLOCK), *weight, token, x, cols)
            else:
                yield self._bind("embed_f32", _blocks(cols, THREADS_A_BLOCK), *weight, token, x, cols)

    def _matrix(self, name: str, x: str, y: str) -> Iterator[Launch]:
        """y = x W^T in the form that W is kept in: q4 reads W once for all rows, f32 once for each."""
        tensor, weight = self._model.tensors[name], self._model.weights[name]
        rows, cols = tensor.shape
        grid = _blocks(rows, WARPS_A_BLOCK)
        if not self._model.packed(tensor, self._rows):
            for m in range(self._rows):
                source, target = self._row(x, m, cols), self._row(y, m, rows)
                yield self._bind("gemv_f32", grid, *weight, None, source, target, None, rows, 0, cols)
        elif self._rows == 1:
            yield self._bind("gemv_q4", grid, *weight, self._buffers[x], self._buffers[y], rows, cols)
        else:
            r = weight_rows(name)
            kernel, grid = instance(r, self._rows), _blocks(rows, WARPS_A_BLOCK * r)
            yield self._bind(kernel, grid, *weight, self._buffers[x], self._buffers[y], rows, cols)

    def _norm(self, x: str, weight: str, y: str) -> Launch:
        source, target, size = self._buffers[x], self._buffers[y], self._model.config.hidden
        return self._bind("rms_norm", self._rows, source, self._plain(weight), target, size, self._eps)

    def _add(self, x: str, y: str) -> Launch:
        size = self._rows * self._model.config.hidden
        return self._bind("add", _blocks(size, THREADS_A_BLOCK), self._buffers[x], self._buffers[y], size)

    def _plain(self, name: str) -> Any:
        """A tensor that is f32 in every form."""
        (buffer,) = self._model.weights[name]
        return buffer

    def _row(self, name: str, m: int, width: int) -> Any:
        """A buffer from its row m on."""
        return self._buffers[name].after(m * width)


def _blocks(items: int, a_block: int) -> int:
    """Blocks that hold so many items: the quotient, rounded up."""
    return -(-items // a_block)
