"""One step of a model: which kernels run on which buffers, in order. Built once at open, run once a token.

Buffers never move, so a step is a list of bound launches; what changes from token to token, the token and the cursor,
lies in device memory. Formulas and their order: reference qwen35.md sections 2 to 4. Anything that can be refused is
refused before the first byte of state changes.
"""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import rope_table
from .config import GDN, Config
from .device import THREADS_A_BLOCK, WARPS_A_BLOCK, Device, Launch, open_device
from .errors import KernelError, Refused
from .placed import placed
from .state import CURSOR, planes, scratch, scratch_stride
from .weights import EMBEDDING, FORMS, HEAD, Weights, chunks, stored_bytes, tensors


def open_engine(
    binary: Path,
    config: Config,
    weights: Weights,
    *,
    capacity: int,
    threads: int = 1,
    limit_bytes: int | None = None,
    split_ns: int | None = None,
) -> "Engine":
    """An engine with an empty state for up to `capacity` tokens. Raises KernelError, or Refused before it allocates."""
    if type(capacity) is not int or not 1 <= capacity <= rope_table.POSITIONS_MAX:
        raise KernelError(f"capacity {capacity}", "out of range", f"use 1..{rope_table.POSITIONS_MAX}")
    if weights.form not in FORMS:
        raise KernelError(f"weights {weights.form}", "unknown form", f"use one of {', '.join(FORMS)}")
    sizes = tuple(_sizes(config, capacity, weights.form))
    needed = sum(sizes)
    if limit_bytes is not None and needed > limit_bytes:
        what = f"the model needs {needed} bytes, the limit is {limit_bytes}"
        raise Refused("memory", what, "raise the limit or lower the capacity", reason="limit-bytes")
    device = open_device(binary, threads=threads, split_ns=split_ns, sizes=sizes)
    return Engine(device, config, weights, capacity)


def needed_bytes(config: Config, capacity: int, form: str) -> int:
    """All that an engine allocates on its device."""
    return sum(_sizes(config, capacity, form))


def _sizes(config: Config, capacity: int, form: str) -> Iterator[int]:
    """The bytes of every buffer."""
    for tensor in tensors(config):
        yield from stored_bytes(tensor, form)
    yield from (plane.bytes for source in (planes, scratch) for plane in source(config, capacity))
    yield from (4 * capacity * (config.rotary // 2),) * 2  # cosines, sines
    yield from (4,) * 3  # token, cursor, greedy token


class Engine:
    """A model, its state and its step. One at a time may call it."""

    def __init__(self, device: Device[Any], config: Config, weights: Weights, capacity: int):
        self.config, self.capacity = config, capacity
        self._device = device
        self._shapes = {tensor.name: tensor.shape for tensor in tensors(config)}
        self._weights = {tensor.name: placed(device, weights, tensor) for tensor in tensors(config)}
        self._planes = {plane.name: plane for plane in planes(config, capacity)}
        self._state = {name: device.zeros(plane.shape) for name, plane in self._planes.items()}
        # scratch starts as NaN, so that a kernel that reads what no kernel wrote is seen
        self._scratch = {p.name: device.upload(np.full(p.shape, np.nan, np.float32)) for p in scratch(config, capacity)}
        self._token, self._cursor, self._greedy = (device.zeros((1,), np.int32) for _ in range(3))
        angles = rope_table.table(config.rope_theta, config.rotary, capacity)
        self._cos, self._sin = (device.upload(table) for table in angles)
        self._tokens_seen = 0
        self._eps = np.float32(config.eps)
        self._step = self._program()
        self._argmax = [device.bind("argmax", 1, self._scratch["logits"], self._greedy, config.vocab)]

    @property
    def cursor(self) -> int:
        """Tokens seen."""
        return self._tokens_seen

    def forward(self, token: int) -> None:
        """Runs one token at the next position. Raises Refused, with nothing changed."""
        self._check(token)
        self._device.write(self._token, np.array([token], dtype=np.int32))
        self._device.run(self._step)
        self._move_cursor(self._tokens_seen + 1)

    def hidden(self) -> np.ndarray:
        """f32 [hidden] of the last token, after the final norm."""
        return self._device.download(self._scratch["hidden"])

    def logits(self) -> np.ndarray:
        """f32 [vocab] of the last token."""
        return self._device.download(self._scratch["logits"])

    def argmax(self) -> int:
        """The token with the largest logit, the first on ties."""
        self._device.run(self._argmax)
        return int(self._device.download(self._greedy)[0])

    def planes(self) -> dict[str, np.ndarray]:
        """All state by name, in a fixed order: of keys and values the rows below the cursor; last, the cursor."""
        found = {}
        for name, plane in self._planes.items():
            whole = self._device.download(self._state[name])
            found[name] = whole[: self._tokens_seen] if plane.rows else whole
        found[CURSOR] = self._device.download(self._cursor)
        return found

    def reset(self) -> None:
        """Forgets every token."""
        for name, plane in self._planes.items():
            if not plane.rows:
                self._device.write(self._state[name], np.zeros(plane.shape, dtype=np.float32))
        self._move_cursor(0)

    def weight(self, name: str) -> tuple[np.ndarray, ...]:
        """A tensor as the device holds it: words and scales, or its f32 values. Raises KernelError."""
        if name not in self._weights:
            raise KernelError(f"tensor {name}", "is not in this model", "name one of the table of weights.py")
        return tuple(self._device.download(buffer) for buffer in self._weights[name])

    def step_ns(self, kernel: str | None = None, *, behind: int = 0) -> int:
        """How long a step's launches take, or those of one kernel of it; `behind` whole steps are queued before.

        What a step leaves in memory is written and the cursor stays, so reset() before the next forward.
        """
        chosen = [launch for launch in self._step if kernel in (None, launch.kernel)]
        self._device.run(behind * self._step)
        return self._device.timed(chosen)

    def step_kernels(self) -> dict[str, int]:
        """The kernels of a step by name, and how often each is launched."""
        return dict(Counter(launch.kernel for launch in self._step))

    def close(self) -> None:
        self._device.close()

    def _check(self, token: int) -> None:
        """The one predicate of what a step needs."""
        if type(token) is not int or not 0 <= token < self.config.vocab:
            todo = f"use a whole number in 0..{self.config.vocab - 1}"
            raise Refused("forward", f"token {token!r} is out of range", todo, reason="token-range")
        if self._tokens_seen >= self.capacity:
            what = f"the context of {self.capacity} tokens is full"
            raise Refused("forward", what, "reset, or open with a larger capacity", reason="context-full")

    def _move_cursor(self, tokens: int) -> None:
        self._device.write(self._cursor, np.array([tokens], dtype=np.int32))
        self._tokens_seen = tokens

    # the program

    def _program(self) -> list[Launch]:
        step = [self._embedding()]
        for i, kind in enumerate(self.config.kinds):
            layer = f"layers.{i}."
            step.append(self._norm("x", layer + "input_layernorm.weight", "normed"))
            step += self._gdn(layer) if kind == GDN else self._attention(layer)
            step.append(self._add("mixed", "x"))
            step.append(self._norm("x", layer + "post_attention_layernorm.weight", "normed"))
            step += self._mlp(layer)
            step.append(self._add("mixed", "x"))
        step.append(self._norm("x", "norm.weight", "hidden"))
        step.append(self._matrix(EMBEDDING if self.config.tied else HEAD, "hidden", "logits"))
        return step

    def _gdn(self, layer: str) -> list[Launch]:
        """normed to mixed through a Gated DeltaNet mixer; section 3."""
        c, s, bind = self.config, self._scratch, self._device.bind
        nk, nv, dk, dv = c.key_heads, c.value_heads, c.key_dim, c.value_dim
        state, history = self._state[layer + "state"], self._state[layer + "history"]
        layer += "linear_attn."
        a_weight, b_weight = (self._plain(f"{layer}in_proj_{name}.weight") for name in "ab")
        rate, bias, taps = (self._plain(layer + name) for name in ("A_log", "dt_bias", "conv1d.weight"))
        q, k, v = s["gdn_q"], s["gdn_k"], s["y"].after(2 * c.key_width)
        gain, root = self._plain(layer + "norm.weight"), np.sqrt(np.float32(dk))
        a, b, decay, beta, o, gated = (s[name] for name in ("a", "b", "decay", "beta", "o", "gated"))
        small = _blocks(2 * nv, WARPS_A_BLOCK)
        convolved = _blocks(c.channels, THREADS_A_BLOCK)
        return [
            self._matrix(layer + "in_proj_qkv.weight", "normed", "u"),
            self._matrix(layer + "in_proj_z.weight", "normed", "z"),
            bind("gemv_f32", small, a_weight, b_weight, s["normed"], a, b, nv, nv, c.hidden),
            bind("gdn_conv", convolved, s["u"], history, taps, s["y"], c.channels, c.conv_kernel),
            bind("gdn_qk_norm", _blocks(2 * nk, WARPS_A_BLOCK), s["y"], q, k, nk, dk, root),
            bind("gdn_gates", _blocks(nv, THREADS_A_BLOCK), a, b, rate, bias, decay, beta, nv),
            bind("gdn_delta", nv, q, k, v, decay, beta, state, o, nk, nv, dk, dv),
            bind("gdn_gate_norm", _blocks(nv, WARPS_A_BLOCK), o, s["z"], gain, gated, nv, dv, self._eps),
            self._matrix(layer + "out_proj.weight", "gated", "mixed"),
        ]

    def _attention(self, layer: str) -> list[Launch]:
        """normed to mixed through full attention; section 4."""
        c, s, bind = self.config, self._scratch, self._device.bind
        keys, values = self._state[layer + "keys"], self._state[layer + "values"]
        layer += "self_attn."
        gains = (self._plain(layer + "q_norm.weight"), self._plain(layer + "k_norm.weight"))
        place = (self._cos, self._sin, self._cursor)
        heads = (c.heads, c.kv_heads, c.head_dim)
        stride, scale = scratch_stride(self.capacity), np.float32(1.0 / math.sqrt(c.head_dim))
        prepared = _blocks(c.heads + c.kv_heads, WARPS_A_BLOCK)
        appended = _blocks(c.kv_width, THREADS_A_BLOCK)
        cached = (keys, values, self._cursor)
        return [
            self._matrix(layer + "q_proj.weight", "normed", "qg"),
            self._matrix(layer + "k_proj.weight", "normed", "k_raw"),
            self._matrix(layer + "v_proj.weight", "normed", "v"),
            bind("qk_prep", prepared, s["qg"], s["k_raw"], *gains, *place, s["q"], s["k"], *heads, c.rotary, self._eps),
            bind("kv_append", appended, s["k"], s["v"], *cached, c.kv_width),
            bind("attention", c.heads, s["q"], s["qg"], *cached, s["scores"], s["gated"], *heads, stride, scale),
            self._matrix(layer + "o_proj.weight", "gated", "mixed"),
        ]

    def _mlp(self, layer: str) -> list[Launch]:
        """normed to mixed through the gated MLP."""
        s, size = self._scratch, self.config.intermediate
        return [
            self._matrix(layer + "mlp.gate_proj.weight", "normed", "gate"),
            self._matrix(layer + "mlp.up_proj.weight", "normed", "up"),
            self._device.bind("swiglu", _blocks(size, THREADS_A_BLOCK), s["gate"], s["up"], s["act"], size),
            self._matrix(layer + "mlp.down_proj.weight", "act", "mixed"),
        ]

    def _embedding(self) -> Launch:
        weight, x, cols = self._weights[EMBEDDING], self._scratch["x"], self.config.hidden
        if len(weight) == 1:
            return self._device.bind("embed_f32", _blocks(cols, THREADS_A_BLOCK), *weight, self._token, x, cols)
        return self._device.bind("embed_q4", _blocks(chunks(cols), WARPS_A_BLOCK), *weight, self._token, x, cols)

    def _matrix(self, name: str, x: str, y: str) -> Launch:
        """y = W x, one warp a row, in the form that W is kept in."""
        rows, cols = self._shapes[name]
        weight, grid = self._weights[name], _blocks(rows, WARPS_A_BLOCK)
        source, target = self._scratch[x], self._scratch[y]
        if len(weight) == 1:
            return self._device.bind("gemv_f32", grid, *weight, None, source, target, None, rows, 0, cols)
        return self._device.bind("gemv_q4", grid, *weight, source, target, rows, cols)

    def _norm(self, x: str, weight: str, y: str) -> Launch:
        source, target, size = self._scratch[x], self._scratch[y], self.config.hidden
        return self._device.bind("rms_norm", 1, source, self._plain(weight), target, size, self._eps)

    def _add(self, x: str, y: str) -> Launch:
        size = self.config.hidden
        return self._device.bind("add", _blocks(size, THREADS_A_BLOCK), self._scratch[x], self._scratch[y], size)

    def _plain(self, name: str) -> Any:
        """A tensor that is f32 in every form."""
        (buffer,) = self._weights[name]
        return buffer


def _blocks(items: int, a_block: int) -> int:
    """Blocks that hold so many items: the quotient, rounded up."""
    return -(-items // a_block)
