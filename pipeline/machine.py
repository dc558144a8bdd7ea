"""What records and evidence say of this machine and its clock. No host name, user or path.

The clock is for people: no rule asks it, and order is the ledger's sequence.
"""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


def describe() -> dict[str, str]:
    """Model, processors, kernel, libc, Python."""
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = (
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        )
        model = next(names, model)
    return {
        "model": model,
        "cpus": str(os.cpu_count()),
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
    }


def now() -> str:
    """RFC 3339, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
