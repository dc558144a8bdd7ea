"""Float64 reference of gdn.cuh: the Gated DeltaNet mixer of one token, u to gated norm. States are returned."""

import numpy as np

from .bitmath import exp, sigmoid, silu, softplus
from .rms_norm import scaled

L2_EPS = 1e-6  # inside the root, on the sum


def conv(u: np.ndarray, history: np.ndarray, taps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """silu of the causal convolution [channels], and the next history.

    u [channels]; history [kernel - 1][channels] of raw u, oldest first; taps [kernel][channels], the oldest's first.
    """
    window = np.concatenate([np.asarray(history, np.float64), np.asarray(u, np.float64)[None]])
    return silu((window * np.asarray(taps, np.float64)).sum(axis=0)), window[1:]


def qk_norm(y: np.ndarray, key_heads: int, key_dim: int) -> tuple[np.ndarray, np.ndarray]:
    """q = l2(q) / sqrt(key_dim) and k = l2(k), each [key_heads][key_dim]; y = [q | k | v] of conv."""
    q, k = np.asarray(y, np.float64)[: 2 * key_heads * key_dim].reshape(2, key_heads, key_dim)
    return l2(q) / np.sqrt(key_dim), l2(k)


def l2(t: np.ndarray) -> np.ndarray:
    """t / sqrt(sum t^2 + 1e-6) over the last axis."""
    return np.asarray(t / np.sqrt((t * t).sum(axis=-1, keepdims=True) + L2_EPS))


def gates(a: np.ndarray, b: np.ndarray, a_log: np.ndarray, dt_bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """decay = exp(-exp(a_log) softplus(a + dt_bias)) and beta = sigmoid(b), each [value_heads]."""
    step = softplus(np.asarray(a, np.float64) + np.asarray(dt_bias, np.float64))
    return exp(-exp(a_log) * step), sigmoid(b)


def delta(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, decay: np.ndarray, beta: np.ndarray, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The delta rule for one token: the output [value_heads][value_dim] and the next state.

    q, k [key_heads][key_dim], v [value_heads][value_dim], decay, beta [value_heads],
    state [value_heads][key_dim][value_dim]. Value head h has the key head h // (value_heads / key_heads).
    """
    q, k, v, state = (np.asarray(array, np.float64) for array in (q, k, v, state))
    decay, beta = (np.asarray(array, np.float64)[:, None] for array in (decay, beta))
    q, k = (np.repeat(array, len(v) // len(array), axis=0) for array in (q, k))
    decayed = decay[:, :, None] * state
    d = beta * (v - np.einsum("hin,hi->hn", decayed, k))
    state = decayed + k[:, :, None] * d[:, None, :]
    return np.einsum("hin,hi->hn", state, q), state


def gate_norm(o: np.ndarray, z: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """o / sqrt(mean(o^2) + eps) * weight * silu(z).

    o, z [value_heads][value_dim]; weight [value_dim] is the gain itself, not 1 + weight.
    """
    return np.asarray(scaled(o, eps) * np.asarray(weight, np.float64) * silu(z))
