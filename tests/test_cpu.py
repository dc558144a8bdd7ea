"""The CPU device: buffers, bound launches, and threads that share out blocks."""

import ctypes
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kernels import artifact
from kernels.engine import cpu
from kernels.engine.errors import KernelError


@cache
def binary() -> Path:
    return artifact.load(artifact.tree()).binary


def gemv(device: cpu.Device, rows: int, cols: int) -> tuple[cpu.Launch, cpu.Buffer]:
    """A f32 matrix times a vector, bound, and where its result goes."""
    draw = np.random.default_rng(rows)
    matrix, x = (device.upload(draw.standard_normal(shape, dtype=np.float32)) for shape in ((rows, cols), (cols,)))
    y = device.upload(np.full(rows, np.nan, dtype=np.float32))
    return device.bind("gemv_f32", -(-rows // 8), matrix, None, x, y, None, rows, 0, cols), y


@pytest.mark.parametrize("threads", [2, 3, 5, 40])
@pytest.mark.parametrize("rows", [1, 7, 33, 97, 256])
def test_threads_share_out_blocks(threads: int, rows: int) -> None:
    """Split over any number of threads, more than there are blocks too, every row is written with the bytes of one."""
    wanted = []
    for count in (1, threads):
        device = cpu.Device(binary(), threads=count, split_ns=0)
        launch, y = gemv(device, rows, 31)
        device.run([launch])
        wanted.append(device.download(y))
        device.close()
    assert np.isfinite(wanted[0]).all() and wanted[0].tobytes() == wanted[1].tobytes()


def test_small_launches_are_not_split() -> None:
    """On two threads a launch estimated below the limit is one direct call, and one above it is two."""
    device = cpu.Device(binary(), threads=2)
    calls: list[int] = []
    device._together = lambda parts: calls.append(len(parts))  # type: ignore[method-assign, assignment]
    device.run([gemv(device, 64, 64)[0]])
    assert calls == []
    device.run([gemv(device, 1024, 512)[0]])
    assert calls == [2]
    device.close()


def test_every_costed_kernel_is_in_the_binary() -> None:
    """The table of estimates names kernels that exist, and takes the whole numbers that they are bound with."""
    library = ctypes.CDLL(str(binary()))
    assert all(hasattr(library, name) for name in cpu.COST_NS)
    assert cpu.COST_NS["gemv_q4"](34816, 5120) > cpu.SPLIT_NS_MIN > cpu.COST_NS["gemv_q4"](96, 5120)


def test_buffers_begin_on_a_cache_line() -> None:
    """Zeros and uploads are aligned, whatever their size, and an upload is a copy."""
    device = cpu.Device(binary())
    source = np.arange(7, dtype=np.float32)[::-1]
    for buffer in (device.zeros((3, 5)), device.zeros((1,), np.int32), device.upload(source)):
        assert buffer.address % cpu.ALIGNMENT == 0
    uploaded = device.upload(source)
    source[0] = 99
    assert device.download(uploaded).tolist() == [6, 5, 4, 3, 2, 1, 0]


def test_a_download_is_a_copy() -> None:
    """What was downloaded does not change when the buffer does."""
    device = cpu.Device(binary())
    buffer = device.zeros((2,))
    before = device.download(buffer)
    device.write(buffer, np.ones(2, dtype=np.float32))
    assert before.tolist() == [0, 0] and device.download(buffer).tolist() == [1, 1]


def test_after_is_the_same_memory() -> None:
    """A buffer after 3 elements begins 12 bytes later and sees what is written to the whole."""
    device = cpu.Device(binary())
    whole = device.zeros((2, 4))
    rest = whole.after(3)
    device.write(whole, np.arange(8, dtype=np.float32).reshape(2, 4))
    assert rest.address == whole.address + 12 and device.download(rest).tolist() == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("array", [np.zeros(3, np.float32), np.zeros(2, np.float64)])
def test_a_write_must_fit(array: np.ndarray) -> None:
    """An array of another shape or dtype is refused and nothing is written."""
    device = cpu.Device(binary())
    buffer = device.upload(np.ones(2, dtype=np.float32))
    with pytest.raises(KernelError, match="does not fit"):
        device.write(buffer, array)
    assert device.download(buffer).tolist() == [1, 1]


@pytest.mark.parametrize("arg", [1.0, True, np.int64(3), "x"])
def test_an_argument_has_one_of_four_types(arg: object) -> None:
    """A Python float, which a kernel would read as another number, and anything else unknown is refused when bound."""
    device = cpu.Device(binary())
    with pytest.raises(KernelError, match="add was given a"):
        device.bind("add", 1, device.zeros((1,)), device.zeros((1,)), arg)  # type: ignore[arg-type]


def test_an_absent_kernel_is_named() -> None:
    """Binding a kernel that the library lacks says which."""
    with pytest.raises(KernelError, match="no kernel nonesuch"):
        cpu.Device(binary()).bind("nonesuch", 1)


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    """A text file, and one that is not there, are refused by their path."""
    (tmp_path / "text.so").write_text("no library")
    for name in ("text.so", "absent.so"):
        with pytest.raises(KernelError, match=name):
            cpu.Device(tmp_path / name)


@pytest.mark.parametrize("threads", [0, -1, 257, True, 1.0])
def test_threads_have_a_range(threads: int) -> None:
    """The number of threads is a whole number in 1..256."""
    with pytest.raises(KernelError, match="threads"):
        cpu.Device(binary(), threads=threads)


def test_a_process_without_denormals_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where numbers below the smallest normal one vanish, the bits would differ, so no device is made."""
    monkeypatch.setattr(sys, "float_info", type("Info", (), {"min": 0.0}))
    with pytest.raises(KernelError, match="denormal"):
        cpu.Device(binary())
