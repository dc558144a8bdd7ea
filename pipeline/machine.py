"""What records and evidence say of this machine and its clock. No host name, user or path.

The clock is for people: no rule asks it, and order is the ledger's sequence.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final


def describe(needs: str | None = None) -> dict[str, str]:
    """Model, processors, kernel, libc, Python; and under its own name what a target needs, if it is here."""
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = (
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        )
        model = next(names, model)
    found = {
        "model": model,
        "cpus": str(os.cpu_count()),
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
    }
    return found | (_NEEDS[needs]() if needs in _NEEDS else {})


def _gpu() -> dict[str, str]:
    """The first CUDA device, its driver and CuPy; nothing where there is none."""
    try:
        import cupy

        device = cupy.cuda.runtime.getDeviceProperties(0)
        driver = cupy.cuda.runtime.driverGetVersion()
    except Exception:  # no CuPy, no driver, no device: each has an error of its own
        return {}
    return {
        "gpu": f"{device['name'].decode()}, sm_{device['major']}{device['minor']}, "
        f"{device['totalGlobalMem'] >> 20} MiB",
        "cuda driver": f"{driver // 1000}.{driver % 1000 // 10}",
        "cupy": cupy.__version__,
    }


_NEEDS: Final[dict[str | None, Callable[[], dict[str, str]]]] = {"gpu": _gpu}


def now() -> str:
    """RFC 3339, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
