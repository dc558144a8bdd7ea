"""Weights on a device: copied to it, or, where they come from a seed, made there; and planes cut from one buffer.

Large synthetic matrices alone are made there; small tensors are a host's work. Whoever must know what ran byte by byte
wraps the weights (tools/inputs.py), and they are then read on the host and copied.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from .device import THREADS_A_BLOCK, WARPS_A_BLOCK, Device
from .state import INT_REGIONS, Plane
from .synthetic import Synthetic
from .weights import BLOCK, BLOCKS_A_CHUNK, Q4, Packed, Tensor, Weights, chunks

SCALES_A_WORD = 2  # that a lane writes at once


def placed(device: Device[Any], weights: Weights, tensor: Tensor) -> tuple[Any, ...]:
    """A tensor as the kernels read it: a q4 matrix as words and scales, taps [taps][channels], the rest as it is."""
    if isinstance(weights, Synthetic) and tensor.form == Q4:
        return _made(device, weights, tensor)
    value = weights.read(tensor)
    if isinstance(value, Packed):
        return device.upload(value.words), device.upload(value.scales)
    return (device.upload(value[:, 0, :].T if value.ndim == 3 else value),)


def cut(whole: Any, planes: Iterable[Plane]) -> dict[str, Any]:
    """The planes by name, one behind the other in one buffer of 4-byte elements."""
    parts, start = {}, 0
    for plane in planes:
        parts[plane.name] = whole.part(start, plane.shape, dtype_of(plane.name))
        start += plane.bytes // 4
    return parts


def dtype_of(name: str) -> type:
    """What a plane or region of that name holds."""
    return np.int32 if name in INT_REGIONS else np.float32


def _made(device: Device[Any], weights: Synthetic, tensor: Tensor) -> tuple[Any, ...]:
    """Words and scales by the kernels of synthetic.cuh."""
    recipe = weights.recipe(tensor)
    rows, cols = tensor.shape
    count = rows * chunks(cols)
    words = device.zeros((rows, chunks(cols) * BLOCK), np.uint32)
    scales = device.zeros((rows, chunks(cols) * BLOCKS_A_CHUNK), np.uint16)
    pairs = count * BLOCKS_A_CHUNK // SCALES_A_WORD
    keys, scale_keys = (tuple(map(_signed, halves)) for halves in (recipe.words, recipe.scales))
    launches = (
        device.bind("synthetic_words", -(-count // WARPS_A_BLOCK), words, *keys, rows, cols),
        device.bind("synthetic_scales", -(-pairs // THREADS_A_BLOCK), scales, *scale_keys, recipe.exponent, rows, cols),
    )
    device.run(launches)
    return words, scales


def _signed(bits: int) -> int:
    """The int32 that has these 32 bits: an argument of a kernel is signed."""
    return bits - (bits >> 31 << 32)
