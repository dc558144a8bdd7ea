"""The CUDA device: buffers that never move, and launches of the artifact's cubin on one stream, or in graphs on it.

The only home of CuPy in the engine. The cubin is loaded as it is and nothing else is ever compiled: CuPy copies, clears
and launches. Copies to and from the host wait for the stream, and the stream for them. A launch returns before it has
run, so an error may show later; it is told as one line that names every launch since the device was last waited for,
and with CUDA_LAUNCH_BLOCKING=1 the one launch.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .device import THREADS_A_BLOCK, Launch
from .errors import KernelError, Refused

CAPABILITY = "90"  # of the devices that a cubin for sm_90 runs on
GRANULE = 512  # bytes: what an allocation is rounded up to
LARGE, LARGE_GRANULE = 1 << 20, 2 << 20  # bytes: from there on the driver gives whole pages
NAMED_MAX = 12  # kinds of launches that an error names
PENDING_MAX = 1 << 16  # launches in flight that are counted by name


class Buffer:
    """Memory of the device, or the rest of it from an element on. It is the device's: closed, it is no more."""

    __slots__ = ("address", "dtype", "shape")

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype):
        self.address, self.shape, self.dtype = address, shape, dtype

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def after(self, elements: int) -> Buffer:
        """The same memory without its first elements, flat."""
        left = self.bytes // self.dtype.itemsize - elements
        return Buffer(self.address + elements * self.dtype.itemsize, (left,), self.dtype)

    def part(self, start: int, shape: tuple[int, ...], dtype: type) -> Buffer:
        """The same memory from an element on, in a shape and a type of as many bytes."""
        return Buffer(self.address + start * self.dtype.itemsize, shape, np.dtype(dtype))


class Device:
    """The module of one artifact on the first GPU. Raises KernelError, and Refused when `sizes` do not fit.

    All buffers are taken while an engine opens, but for what its first rows take. They are given back at close, or
    with the device.
    """

    graphs = True

    def __init__(self, binary: Path, *, sizes: Sequence[int] = ()):
        self._cuda = _cuda()
        self._errors = (self._cuda.runtime.CUDARuntimeError, self._cuda.driver.CUDADriverError)
        self._blocking = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"
        self._pending: Counter[tuple[str, int]] = Counter()
        self._taken = list[int]()  # addresses
        self._arguments = list[np.ndarray]()  # of launches; the driver reads them where they lie
        with self._told("opening the device"):
            found = self._cuda.Device(0).compute_capability
            if found != CAPABILITY:
                what = f"the device has compute capability {found}, the artifact is for {CAPABILITY}"
                raise KernelError("cuda", what, "use a machine with such a device")
            _check_memory(sum(map(_rounded, sizes)), *self._cuda.runtime.memGetInfo())
            self._stream = self._cuda.Stream()  # of the kind that the default stream waits for, and it for that
        self._module = _module(binary, self._errors)
        self._graphs = list[Any]()  # that were captured
        self._given_back = weakref.finalize(self, _free, self._cuda.runtime.free, self._taken)

    def zeros(self, shape: tuple[int, ...], dtype: type = np.float32) -> Buffer:
        buffer = self._empty(shape, np.dtype(dtype))
        with self._told("clearing memory"):
            if buffer.bytes:
                self._cuda.runtime.memset(buffer.address, 0, buffer.bytes)
        return buffer

    def upload(self, array: np.ndarray) -> Buffer:
        """A buffer with a copy of an array."""
        buffer = self._empty(array.shape, array.dtype)
        self.write(buffer, array)
        return buffer

    def download(self, buffer: Buffer) -> np.ndarray:
        """A copy of a buffer, once every launch before has ended."""
        array = np.empty(buffer.shape, dtype=buffer.dtype)
        self._copy(array.ctypes.data, buffer.address, array.nbytes, self._cuda.runtime.memcpyDeviceToHost)
        return array

    def write(self, buffer: Buffer, array: np.ndarray) -> None:
        """Fills a buffer, once every launch before has ended. Raises KernelError unless shape and dtype are its own."""
        if buffer.shape != array.shape or buffer.dtype != array.dtype:
            what = f"{array.shape} {array.dtype} does not fit {buffer.shape} {buffer.dtype}"
            raise KernelError("cuda", what, "this is a fault of the engine")
        whole = np.ascontiguousarray(array)
        self._copy(buffer.address, whole.ctypes.data, whole.nbytes, self._cuda.runtime.memcpyHostToDevice)

    def copy(self, target: Buffer, source: Buffer) -> Launch:
        """The copy of one buffer to another of its size, bound."""
        if target.bytes != source.bytes:
            what = f"a copy of {source.bytes} bytes to {target.bytes}"
            raise KernelError("cuda", what, "this is a fault of the engine")
        kind = self._cuda.runtime.memcpyDeviceToDevice
        copy, stream = self._cuda.runtime.memcpyAsync, self._stream.ptr
        return Launch("copy", 0, partial(copy, target.address, source.address, source.bytes, kind, stream))

    def bind(self, kernel: str, grid: int, *args: Buffer | int | np.float32 | None) -> Launch:
        """One launch of `grid` blocks, ready to run: the driver gets addresses of arguments that never move."""
        try:
            function = self._module.get_function(kernel)
        except self._errors as error:
            raise KernelError("cuda", f"the artifact has no kernel {kernel}", "build the artifact again") from error
        values = np.zeros(len(args), dtype=np.uint64)  # a slot each, little-endian
        for slot, arg in enumerate(args):
            value = _converted(kernel, arg)
            values[slot : slot + 1].view(value.dtype)[0] = value
        places = values.ctypes.data + values.itemsize * np.arange(len(args), dtype=np.uint64)
        self._arguments += (values, places)
        shape = (grid, 1, 1, THREADS_A_BLOCK, 1, 1)
        shared = extra = 0
        launch, stream = self._cuda.driver.launchKernel, self._stream.ptr
        return Launch(kernel, grid, partial(launch, function.ptr, *shape, shared, stream, places.ctypes.data, extra))

    def captured(self, launches: Sequence[Launch]) -> Launch:
        """One graph of these launches, which runs them in their order. They take no memory, so capturing takes none."""
        with self._told("capturing a graph"):
            self._stream.begin_capture()
            try:
                for launch in launches:
                    launch.call()
            finally:
                graph = self._stream.end_capture()
        self._graphs.append(graph)
        return Launch("graph", 0, partial(graph.launch, self._stream))

    def run(self, launches: Iterable[Launch]) -> None:
        """Queues launches one after the other; whatever reads memory afterwards waits for the last."""
        launch: Launch | None = None
        try:
            for launch in launches:
                launch.call()
                self._pending[launch.kernel, launch.grid] += 1
                if self._blocking:
                    self._wait()
        except self._errors as error:
            raise self._failure(error, "the launch", launch) from error
        if self._pending.total() > PENDING_MAX:
            with self._told("waiting for the device"):
                self._wait()

    def timed(self, launches: Sequence[Launch]) -> int:
        """Runs launches; ns from before the first to after the last, by the device's clock, to within half a us."""
        with self._told("timing"):
            start, end = self._cuda.Event(), self._cuda.Event()
            start.record(self._stream)
            self.run(launches)
            end.record(self._stream)
            end.synchronize()
            self._pending.clear()
            milliseconds: float = self._cuda.get_elapsed_time(start, end)
            return round(milliseconds * 1e6)

    def close(self) -> None:
        """Gives the memory back; the device is not used again."""
        with self._told("closing the device"):
            self._wait()
            self._graphs.clear()
            self._given_back()

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Buffer:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        try:
            address = self._cuda.runtime.malloc(max(size, 1))
        except self._errors as error:
            with self._told(f"taking {size} bytes"):
                free, total = self._cuda.runtime.memGetInfo()
            raise _lacks(size, free, total) from error
        self._taken.append(address)
        return Buffer(address, shape, dtype)

    def _copy(self, target: int, source: int, size: int, kind: int) -> None:
        with self._told(f"copying {size} bytes"):
            if size:
                self._cuda.runtime.memcpy(target, source, size, kind)
            self._pending.clear()

    def _wait(self) -> None:
        self._cuda.runtime.deviceSynchronize()
        self._pending.clear()

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        """Raises what CUDA reports as one KernelError."""
        try:
            yield
        except self._errors as error:
            raise self._failure(error, doing, None) from error

    def _failure(self, error: Exception, doing: str, launch: Launch | None) -> KernelError:
        """What CUDA said, while what was done, and which launches may be at fault. The device is of no use any more."""
        self._taken.clear()
        failure = KernelError("cuda", *self._words(error, doing, launch))
        failure.last_word = True
        return failure

    def _words(self, error: Exception, doing: str, launch: Launch | None) -> tuple[str, str]:
        word = str(error).splitlines()[0] if str(error) else type(error).__name__
        if launch is not None:
            doing = f"the launch {_shape(launch.kernel, launch.grid)}"
            if self._blocking:
                return f"{word} ({doing})", "mend this kernel, or what it was given"
        if not self._pending:
            return f"{word} ({doing})", "look at the device and its driver"
        kinds = [_shape(*kind) for kind in self._pending]
        named = ", ".join(kinds[:NAMED_MAX]) + (f" and {len(kinds) - NAMED_MAX} more" if len(kinds) > NAMED_MAX else "")
        what = f"{word} ({doing}; one of {self._pending.total()} launches before it: {named})"
        return what, "run it again with CUDA_LAUNCH_BLOCKING=1, which names the one"


def _free(free: Callable[[int], object], addresses: list[int]) -> None:
    while addresses:
        free(addresses.pop())


def _shape(kernel: str, grid: int) -> str:
    return f"{kernel}<<<{grid}, {THREADS_A_BLOCK}>>>" if grid else kernel


def _cuda() -> Any:
    """cupy.cuda on a machine with a GPU. Raises KernelError without either."""
    try:
        import cupy
    except Exception as error:
        what = f"CuPy cannot be imported ({type(error).__name__})"
        raise KernelError("cuda", what, "install the project's dependency group") from error
    try:
        found = cupy.cuda.runtime.getDeviceCount()
        word = "no device"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        found, word = 0, str(error).splitlines()[0]
    if not found:
        raise KernelError("cuda", f"this machine has no GPU ({word})", "run on one that has, or open the CPU artifact")
    return cupy.cuda


def _module(binary: Path, errors: tuple[type[Exception], ...]) -> Any:
    """The loaded cubin. Raises KernelError."""
    import cupy

    todo = "build the artifact again"
    if not binary.is_file():
        raise KernelError(binary.name, "is not there", todo)
    try:
        return cupy.RawModule(path=str(binary)).module  # loads it now
    except errors as error:
        raise KernelError(binary.name, f"is no module that this device loads ({error})", todo) from error


def _rounded(size: int) -> int:
    """What an allocation of so many bytes takes of the device's memory."""
    granule = LARGE_GRANULE if size >= LARGE else GRANULE
    return -(-size // granule) * granule


def _check_memory(needed: int, free: int, total: int) -> None:
    """Raises Refused before anything is taken."""
    if needed > free:
        raise _lacks(needed, free, total)


def _lacks(needed: int, free: int, total: int) -> Refused:
    what = f"{needed} bytes are needed, and {free} of the device's {total} are free"
    return Refused("memory", what, "lower the capacity, or use a larger device", reason="device-memory")


def _converted(kernel: str, arg: object) -> np.uint64 | np.float32 | np.int32:
    if isinstance(arg, Buffer):
        return np.uint64(arg.address)
    if arg is None:
        return np.uint64(0)
    if isinstance(arg, np.float32):
        return arg
    if type(arg) is int:
        return np.int32(arg)
    raise KernelError("cuda", f"{kernel} was given a {type(arg).__name__}", "this is a fault of the engine")
