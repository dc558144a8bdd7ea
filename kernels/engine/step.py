"""One step of a model over M rows: which kernels run on which buffers, in order. Bound once, run once a step.

Buffers never move, so a step is a list of bound launches; what changes from step to step, the tokens and the cursor,
lies in device memory. Formulas and their order: reference qwen35.md sections 2 to 4. Row m of a buffer begins m widths
on. Where a kernel has no rows of its own it is launched once a row, in their order.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from .config import GDN, Config
from .device import THREADS_A_BLOCK, WARPS_A_BLOCK, Device, Launch
from .errors import Refused
from .r_table import instance, together, weight_rows, weight_rows_together
from .state import scratch_stride
from .weights import EMBEDDING, HEAD, Q4, Tensor, chunks

Q4_AT_ONCE, PLAIN_AT_ONCE = 3, 2  # matrices of a kernel that multiplies one row with several: gemv.cuh


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
        s, kinds = self._buffers, self._model.config.kinds
        hidden, eps = self._model.config.hidden, self._eps
        starts = [self._plain(f"layers.{i}.input_layernorm.weight") for i in range(len(kinds))]
        yield from self._embedding()
        yield self._bind("rms_norm", self._rows, s["x"], starts[0], s["normed"], hidden, eps)
        for i, kind in enumerate(kinds):
            layer = f"layers.{i}."
            between = self._plain(layer + "post_attention_layernorm.weight")
            last = i + 1 == len(kinds)
            after, normed = (self._plain("norm.weight"), "hidden") if last else (starts[i + 1], "normed")
            yield from self._gdn(layer) if kind == GDN else self._attention(layer)
            yield self._bind("add_rms_norm", self._rows, s["mixed"], s["x"], between, s["normed"], hidden, eps)
            yield from self._mlp(layer)
            yield self._bind("add_rms_norm", self._rows, s["mixed"], s["x"], after, s[normed], hidden, eps)
        yield from self._matrix(self._model.head, "hidden", "logits")

    def _gdn(self, layer: str) -> Iterator[Launch]:
        """normed to mixed through a Gated DeltaNet mixer; section 3. Its projections read W once for all rows."""
        names = ("in_proj_qkv", "in_proj_z"), ("in_proj_a", "in_proj_b")
        q4, plain = ([f"{layer}linear_attn.{name}.weight" for name in part] for part in names)
        yield from self._projections("normed", dict(zip(q4, "uz", strict=True)), dict(zip(plain, "ab", strict=True)))
        for m in range(self._rows):
            yield from self._recurrence(layer, m)
        yield from self._matrix(layer + "linear_attn.out_proj.weight", "gated", "mixed")

    def _recurrence(self, layer: str, m: int) -> Iterator[Launch]:
        """Projections of row m to gated by the kernels of one token: state and history advance in place, one by one."""
        c, bind = self._model.config, self._bind
        nk, nv, dk, dv = c.key_heads, c.value_heads, c.key_dim, c.value_dim
        state, history = (self._model.state[layer + name] for name in ("state", "history"))
        layer += "linear_attn."
        rate, bias, taps = (self._plain(layer + name) for name in ("A_log", "dt_bias", "conv1d.weight"))
        gain, root = self._plain(layer + "norm.weight"), np.sqrt(np.float32(dk))
        u, y = self._row("u", m, c.channels), self._row("y", m, c.channels)
        q, k, v = self._row("gdn_q", m, c.key_width), self._row("gdn_k", m, c.key_width), y.after(2 * c.key_width)
        a, b, decay, beta = (self._row(name, m, nv) for name in ("a", "b", "decay", "beta"))
        o, z, gated = (self._row(name, m, c.value_width) for name in ("o", "z", "gated"))
        yield bind("gdn_conv", _blocks(c.channels, THREADS_A_BLOCK), u, history, taps, y, c.channels, c.conv_kernel)
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
        targets = {"q": "qg", "k": "k_raw", "v": "v"}
        yield from self._projections("normed", {f"{layer}{name}_proj.weight": y for name, y in targets.items()})
        turned = (s["q"], s["k"])
        yield bind("qk_prep", prepared, s["qg"], s["k_raw"], *gains, *place, *turned, *heads, c.rotary, self._eps)
        yield bind("kv_append", appended, s["k"], s["v"], *cached, c.kv_width)
        seen = (s["q"], s["qg"], *cached, s["scores"], s["gated"])
        yield bind("attention", rows * c.heads, *seen, *heads, stride, scale)
        yield from self._matrix(layer + "o_proj.weight", "gated", "mixed")

    def _mlp(self, layer: str) -> Iterator[Launch]:
        """normed to mixed through the gated MLP."""
        s, size = self._buffers, self._rows * self._model.config.intermediate
        yield from self._projections("normed", {f"{layer}mlp.{name}_proj.weight": name for name in ("gate", "up")})
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

    def _projections(self, x: str, q4: Mapping[str, str], plain: Mapping[str, str] = {}) -> Iterator[Launch]:
        """y = x W^T for several W, to the y of their names; `plain`: two that are f32 in every form, or none.

        One row of a q4 model takes one launch.
        """
        model, bind = self._model, self._bind
        source, cols = self._buffers[x], model.config.hidden
        if self._rows == 1 and all(model.packed(model.tensors[name], 1) for name in q4):
            r = weight_rows_together(next(iter(q4)))
            matrices = [
                (*model.weights[name], self._buffers[y], model.tensors[name].shape[0]) for name, y in q4.items()
            ]
            others = [(self._plain(name), self._buffers[y], model.tensors[name].shape[0]) for name, y in plain.items()]
            grid = _blocks(sum(rows for *_rest, rows in others), WARPS_A_BLOCK)
            grid += sum(_blocks(rows, WARPS_A_BLOCK * r) for *_rest, rows in matrices)
            matrices += [(None, None, None, 0)] * (Q4_AT_ONCE - len(matrices))
            others += [(None, None, 0)] * (PLAIN_AT_ONCE - len(others))
            yield bind(together(r), grid, *chain(*matrices, *others), source, cols)
            return
        for name, y in q4.items():
            yield from self._matrix(name, x, y)
        if plain:
            weights, rows = [self._plain(name) for name in plain], [model.tensors[name].shape[0] for name in plain]
            for m in range(self._rows):
                targets = [self._row(y, m, count) for y, count in zip(plain.values(), rows, strict=True)]
                source = self._row(x, m, cols)
                yield bind("gemv_f32", _blocks(sum(rows), WARPS_A_BLOCK), *weights, source, *targets, *rows, cols)

    def _matrix(self, name: str, x: str, y: str) -> Iterator[Launch]:
        """y = x W^T in the form that W is kept in: q4 reads W once for all rows, f32 once for each."""
        tensor, weight = self._model.tensors[name], self._model.weights[name]
        rows, cols = tensor.shape
        if self._model.packed(tensor, self._rows):
            r = weight_rows(name, self._rows)
            kernel, grid = instance(r, self._rows), _blocks(rows, WARPS_A_BLOCK * r)
            yield self._bind(kernel, grid, *weight, self._buffers[x], self._buffers[y], rows, cols)
            return
        for m in range(self._rows):
            source, target, grid = self._row(x, m, cols), self._row(y, m, rows), _blocks(rows, WARPS_A_BLOCK)
            yield self._bind("gemv_f32", grid, *weight, None, source, target, None, rows, 0, cols)

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
