"""The CUDA device: refused in one line where there is none; where there is one, the bytes that NumPy says."""

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import artifact, engine
from kernels.engine import device, synthetic, weights
from kernels.engine.errors import KernelError
from kernels.tools import bitmath, model

ROOT = Path(__file__).parents[1]
STORED = ROOT / "kernels" / "bitmath" / "cpu-x86_64.txt"
TEXT = tuple((ROOT / "kernels" / "text" / "kestrel.txt").read_bytes()[:16])


@cache
def absent() -> str:
    """Why there is no device here; nothing if there is one."""
    try:
        import cupy

        return "" if cupy.cuda.runtime.getDeviceCount() else "no CUDA device"
    except Exception as error:
        return str(error).splitlines()[0]


@cache
def binary() -> Path:
    return artifact.load(artifact.tree("cuda-sm_90")).binary


@pytest.fixture
def gpu() -> Any:
    if absent():
        pytest.skip(absent())
    opened = device.open_device(binary())
    yield opened
    opened.close()


def command(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The code as a command of its own process, in which `device` is the opened GPU."""
    lines = [
        "import sys, types",
        "from kernels import __main__, artifact",
        "from kernels.engine import device as face",
        "def run(argv):",
        "    device = face.open_device(artifact.load(artifact.tree('cuda-sm_90')).binary)",
        *(f"    {line}" for line in code.splitlines()),
        "    return 0",
        "sys.modules['code'] = types.SimpleNamespace(main=run)",
        "__main__.COMMANDS['code'] = ('code', '')",
        "sys.exit(__main__.main(['code']))",
    ]
    argv = [sys.executable, "-c", "\n".join(lines)]
    env = os.environ | environment
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(not absent(), reason="this machine has a device")
def test_without_a_device_one_line_says_so() -> None:
    """Opening a cubin on a machine without a GPU raises one line that names the remedy; a command ends in exit 2."""
    with pytest.raises(KernelError, match=r"cuda: this machine has no GPU \(.*\); run on one that has"):
        device.open_device(binary())
    argv = [sys.executable, "-m", "kernels", "lanes", "--cases", "tiny-gdn", "--out", "unused"]
    argv += ["--artifact", str(artifact.tree("cuda-sm_90"))]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("KernelError: cuda: ") and done.stderr.count("\n") == 1


def test_without_cupy_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CuPy is not installed a cubin is refused with the remedy, and nothing else."""
    cubin = binary()  # whose compiler comes with CuPy
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(KernelError, match=r"cuda: CuPy cannot be imported \(ModuleNotFoundError\); install"):
        device.open_device(cubin)


@pytest.mark.gpu
def test_memory_is_a_copy_both_ways(gpu: Any) -> None:
    """Zeros are zeros, a download is what was uploaded or written, and a buffer after 3 elements is the same memory."""
    source = np.arange(8, dtype=np.float32).reshape(2, 4)
    buffer = gpu.upload(source[:, ::-1])
    assert gpu.download(buffer).tolist() == source[:, ::-1].tolist()
    rest = buffer.after(3)
    gpu.write(buffer, source)
    assert gpu.download(rest).tolist() == [3, 4, 5, 6, 7]
    other = gpu.zeros((8,))
    assert not gpu.download(other).any()
    gpu.run([gpu.copy(other, buffer)])
    assert gpu.download(other).tobytes() == source.tobytes()
    assert gpu.download(gpu.zeros((0, 3))).shape == (0, 3)


@pytest.mark.gpu
def test_what_does_not_fit_is_refused(gpu: Any) -> None:
    """An array of another shape, an argument of another type, an absent kernel and too much memory are each named."""
    buffer = gpu.zeros((2,))
    with pytest.raises(KernelError, match="does not fit"):
        gpu.write(buffer, np.zeros(3, np.float32))
    with pytest.raises(KernelError, match="add was given a float"):
        gpu.bind("add", 1, buffer, buffer, 1.0)
    with pytest.raises(KernelError, match="no kernel nonesuch"):
        gpu.bind("nonesuch", 1)
    with pytest.raises(KernelError, match=rf"{1 << 50} bytes are needed") as refused:
        device.open_device(binary(), sizes=(1 << 50,))
    assert refused.value.exit_code == 5 and refused.value.reason == "device-memory"  # type: ignore[attr-defined]
    with pytest.raises(KernelError, match="threads: belong to the CPU"):
        device.open_device(binary(), threads=2)


@pytest.mark.gpu
def test_a_fault_is_one_line_with_kernel_and_launch(gpu: Any) -> None:
    """An illegal access names every launch since the last wait, and with CUDA_LAUNCH_BLOCKING=1 the one at fault."""
    code = "x = device.zeros((8,))\nfar = x.after(0)\nfar.address += 1 << 44\n"
    code += "sound, fault = device.bind('add', 1, x, x, 8), device.bind('add', 3, far, far, 700)\n"
    code += "device.run([sound, fault, sound])\ndevice.download(x)"
    for environment, words in (
        ({"CUDA_LAUNCH_BLOCKING": "0"}, ("one of 3 launches", "add<<<1, 256>>>, add<<<3, 256>>>")),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, ("(the launch add<<<3, 256>>>)",)),
    ):
        done = command(code, **environment)
        assert done.returncode == 2 and done.stderr.startswith("KernelError: cuda: "), done.stderr
        assert "illegal memory access" in done.stderr and all(word in done.stderr for word in words), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.gpu
def test_a_launch_that_cannot_be_is_named(gpu: Any) -> None:
    """A grid larger than any is refused by the driver, in one line with the launch."""
    done = command("x = device.zeros((8,))\ndevice.run([device.bind('add', 1 << 31, x, x, 8)])\ndevice.download(x)")
    assert done.stderr.startswith("KernelError: cuda: ") and done.stderr.count("\n") == 1, done.stderr
    assert f"add<<<{1 << 31}, 256>>>" in done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(3, 200), (1, 1), (13, 1021), (1000, 5120)])
def test_a_device_makes_the_weights_of_numpy(gpu: Any, shape: tuple[int, int]) -> None:
    """Words and scales made on the GPU are the bytes that NumPy makes, tails too."""
    from kernels.engine.placed import placed

    tensor, source = weights.Tensor("layers.0.mlp.up_proj.weight", shape, weights.Q4), synthetic.Synthetic(7)
    wanted = source.read(tensor)
    assert isinstance(wanted, weights.Packed)
    words, scales = (gpu.download(buffer) for buffer in placed(gpu, source, tensor))
    assert words.tobytes() == wanted.words.tobytes() and scales.tobytes() == wanted.scales.tobytes()


@pytest.mark.gpu
def test_a_block_of_bitmath_is_the_cpus(gpu: Any) -> None:
    """The outputs over 2^24 inputs around 1 have the digests that the CPU artifact left."""
    found = bitmath.compute(artifact.load(artifact.tree("cuda-sm_90")), (63,))
    assert found == bitmath._read(STORED, (63,))


@pytest.mark.gpu
def test_an_engine_runs_and_forgets(gpu: Any) -> None:
    """16 tokens of tiny are the float64 model to 4 ppm, and after a reset the same bytes come again."""
    config = engine.shape("tiny", layers="hybrid")
    made = engine.open(binary(), config, engine.Synthetic(1), capacity=16)
    seen = []
    for _ in range(2):
        for token in TEXT:
            made.forward(token)
        seen.append(hashlib.sha256(b"".join(plane.tobytes() for plane in made.planes().values())).hexdigest())
        logits = made.logits()
        made.reset()
    wanted = model.run(config, engine.Synthetic(1), TEXT)[1][-1]
    assert seen[0] == seen[1]
    assert (np.abs(logits - wanted) <= 4e-6 * np.abs(wanted).max()).all()


@pytest.mark.gpu
def test_time_is_the_devices(gpu: Any) -> None:
    """A copy of 1 GiB takes longer than one of 1 MiB, and both longer than nothing."""
    times = []
    for size in (1 << 18, 1 << 28):
        launch = gpu.copy(gpu.zeros((size,)), gpu.zeros((size,)))
        gpu.timed([launch])
        times.append(min(gpu.timed([launch]) for _ in range(5)))
    assert 0 < times[0] < times[1]
