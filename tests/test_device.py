"""Which device a binary is for, and the face that both have."""

import inspect
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kernels import artifact
from kernels.engine import cpu, device, gpu
from kernels.engine.errors import KernelError

ROOT = Path(__file__).parents[1]


@cache
def binary() -> Path:
    return artifact.load(artifact.tree()).binary


def test_a_library_is_for_the_cpu_and_needs_no_cupy() -> None:
    """Opening a .so gives the CPU's device with the threads asked for, and loads neither gpu.py nor CuPy."""
    code = "import sys\nfrom kernels import artifact\nfrom kernels.engine import device\n"
    code += "opened = device.open_device(artifact.load(artifact.tree()).binary, threads=2, split_ns=7)\n"
    code += "print(type(opened).__module__, opened._threads, opened._split_ns, 'cupy' in sys.modules)\n"
    code += "print('kernels.engine.gpu' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "kernels.engine.cpu 2 7 False\nFalse\n"


@pytest.mark.parametrize("name", ["kestrel", "kestrel.dll", "kestrel.so.1"])
def test_another_ending_is_for_no_device(name: str) -> None:
    """A binary that is neither a .so nor a .cubin is refused by its name."""
    with pytest.raises(KernelError, match=rf"{name}: is a binary for no device"):
        device.open_device(Path(name))


@pytest.mark.parametrize("options", [{"threads": 2}, {"split_ns": 0}])
def test_threads_are_the_cpus(options: dict[str, int]) -> None:
    """A cubin is not opened with threads, or with a limit for splitting launches: they would mean nothing."""
    with pytest.raises(KernelError, match="threads: belong to the CPU"):
        device.open_device(Path("kestrel.cubin"), **options)  # type: ignore[arg-type]


def test_both_devices_have_the_face() -> None:
    """Every verb of the face is in both devices, and takes the same arguments."""
    verbs = [name for name, value in vars(device.Device).items() if callable(value) and not name.startswith("_")]
    assert len(verbs) == 10
    for verb in verbs:
        named = list(inspect.signature(getattr(device.Device, verb)).parameters)
        for module in (cpu, gpu):
            assert list(inspect.signature(getattr(module.Device, verb)).parameters) == named, (module, verb)


def test_a_copy_moves_bytes_of_equal_size() -> None:
    """A bound copy moves one buffer to another each time that it runs; of unequal sizes it is refused."""
    opened = device.open_device(binary())
    source, target = opened.upload(np.arange(6, dtype=np.float32)), opened.zeros((2, 3))
    launch = opened.copy(target, source)
    assert not opened.download(target).any()
    opened.run([launch])
    assert opened.download(target).ravel().tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(KernelError, match="a copy of 24 bytes to 4"):
        opened.copy(opened.zeros((1,)), source)


def test_a_launch_says_what_it_is() -> None:
    """A bound launch has its kernel's name and its grid; running it takes time that is more than nothing."""
    opened = device.open_device(binary())
    x = opened.zeros((700,))
    launch = opened.bind("add", 3, x, x, 700)
    assert (launch.kernel, launch.grid) == ("add", 3)
    assert opened.timed([launch]) > 0
