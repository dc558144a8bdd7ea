"""The host half of an artifact. Imports no more than the standard library, NumPy, CuPy and itself, so that an archived
one still runs.

Tools may call the entries, open, and forward, planes and reset of what it returns, and make what open takes: a config
(shape, from_folder) and weights (Synthetic, Checkpoint). open_device is the device alone, for tools that run kernels.
"""

from .checkpoint import Checkpoint
from .config import Config, from_folder, shape
from .device import open_device
from .forward import Engine
from .forward import open_engine as open
from .synthetic import Synthetic

__all__ = ["Checkpoint", "Config", "Engine", "Synthetic", "from_folder", "open", "open_device", "shape"]
