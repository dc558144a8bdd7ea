"""The host half of an artifact. Imports the standard library, NumPy and itself, so that an archived one still runs.

Tools may call the entries, open, and forward, planes and reset of what it returns, and make what open takes: a config
(shape, from_folder) and weights (Synthetic, Checkpoint).
"""

from .checkpoint import Checkpoint
from .config import Config, from_folder, shape
from .forward import Engine
from .forward import open_engine as open
from .synthetic import Synthetic

__all__ = ["Checkpoint", "Config", "Engine", "Synthetic", "from_folder", "open", "shape"]
