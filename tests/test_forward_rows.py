"""M rows in one forward against M single tokens, the slab, the gate, and what refuses rows with nothing changed."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import artifact, engine
from kernels.device.gemv import dequantise
from kernels.engine import config, forward, limits, state, weights
from kernels.engine.errors import KernelError, Refused

TEXT = tuple((Path(__file__).parents[1] / "kernels" / "text" / "kestrel.txt").read_bytes()[:64])
CONFIG = config.shape("tiny", layers="hybrid")  # three gdn layers, and one of attention


class Plain:
    """The synthetic weights, kept in f32."""

    form, origin = "f32", "synthetic, as f32"

    def __init__(self) -> None:
        self._packed = engine.Synthetic(1)

    def read(self, tensor: weights.Tensor) -> Any:
        value = self._packed.read(tensor)
        if isinstance(value, weights.Packed):
            return dequantise(value.words, value.scales, value.cols).astype(np.float32)
        return value


@cache
def binary() -> Path:
    return artifact.load(artifact.tree()).binary


@pytest.fixture(autouse=True)
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Open for 8 rows, unless a test says otherwise."""
    monkeypatch.setenv(limits.GATE, "8")
    yield monkeypatch


def opened(source: Any = None, c: config.Config = CONFIG, **options: Any) -> forward.Engine:
    return engine.open(binary(), c, source or engine.Synthetic(1), **{"capacity": 40, **options})


def planes(e: forward.Engine) -> dict[str, bytes]:
    return {name: plane.tobytes() for name, plane in e.planes().items()}


def singles(e: forward.Engine, tokens: tuple[int, ...]) -> tuple[bytes, bytes, list[int]]:
    """Hidden states, logits and choices of tokens one by one."""
    rows = []
    for token in tokens:
        e.forward(token)
        rows.append((e.hidden(), e.logits(), e.argmax()))
    hidden, logits, chosen = zip(*rows, strict=True)
    return np.stack(hidden).tobytes(), np.stack(logits).tobytes(), list(chosen)


def at_once(e: forward.Engine, tokens: tuple[int, ...]) -> tuple[bytes, bytes, list[int]]:
    e.forward_rows(tokens)
    return e.hidden_rows().tobytes(), e.logits_rows().tobytes(), e.argmax_rows()


@pytest.mark.parametrize("source", [engine.Synthetic(1), Plain()], ids=["q4", "f32"])
def test_rows_are_single_tokens(source: Any) -> None:
    """For M in 2..8 behind 0, 1 and 5 tokens: outputs, choices, all planes, and what follows; q4 weights and f32."""
    one, other = opened(source), opened(source)
    for m in range(2, 9):
        for prefix in (0, 1, 5):
            one.reset()
            other.reset()
            for token in TEXT[:prefix]:
                one.forward(token)
                other.forward(token)
            assert singles(one, TEXT[prefix : prefix + m]) == at_once(other, TEXT[prefix : prefix + m])
            assert planes(one) == planes(other) and other.cursor == prefix + m
            assert singles(one, TEXT[20:22]) == singles(other, TEXT[20:22])


def test_rows_follow_rows() -> None:
    """Rows of every size one after the other, and to the very end of the context, are the same tokens one by one."""
    one, other = opened(capacity=35), opened(capacity=35)
    start = 0
    for m in (2, 8, 3, 7, 4, 6, 5):
        assert singles(one, TEXT[start : start + m]) == at_once(other, TEXT[start : start + m])
        start += m
    assert planes(one) == planes(other) and other.cursor == 35


def test_threads_move_no_bit_of_rows() -> None:
    """On five threads, with every launch split."""
    e = opened(threads=5, split_ns=0)
    assert at_once(e, TEXT[:7]) == at_once(opened(), TEXT[:7])
    e.close()


def test_the_slab_is_allocated_whole_by_the_first_rows(gate: pytest.MonkeyPatch) -> None:
    """Before them there is none; then every region has MM rows, M in use, and the others are as they were made."""
    gate.setenv(limits.GATE, "5")
    e = opened()
    e.forward(1)
    assert e.slab() == {}
    e.forward_rows(TEXT[:3])
    regions = e.slab()
    widths = {plane.name: plane.shape[0] for plane in state.scratch(CONFIG, 40)}
    assert {name: region.shape for name, region in regions.items()} == {
        **dict.fromkeys(state.INT_REGIONS, (5,)),
        **{name: (5, width) for name, width in widths.items()},
    }
    for region in regions.values():
        assert (region[3:].view(np.uint32) == state.POISON).all()
    assert regions["token"][:3].tolist() == list(TEXT[:3]) and np.isfinite(regions["logits"][:3]).all()


def test_nothing_reads_what_poison_fills() -> None:
    """Scratch, slab, keys and values from the cursor on are NaN before every step, and no byte of a result changes."""
    one, other = opened(), opened()
    for tokens in (TEXT[:3], TEXT[3:5], TEXT[5:13]):
        other.poison()
        assert at_once(one, tokens) == at_once(other, tokens)
        other.poison()
        assert singles(one, tokens[:1]) == singles(other, tokens[:1])
    assert planes(one) == planes(other)


def test_attention_has_the_scratch_that_its_contract_asks_for() -> None:
    """cursor + M + a block's width a head and row, to the end of the context: never two head sizes."""
    for capacity in (8, 64, 4096):
        regions = {plane.name: plane.shape for plane in state.slab(CONFIG, capacity, 8)}
        rows, width = regions["scores"]
        assert rows == 8 and width == CONFIG.heads * state.scratch_stride(capacity)
        assert state.scratch_stride(capacity) >= (capacity - 8) + 8 + 256


@pytest.mark.parametrize("word", [None, "1"])
def test_a_closed_gate_refuses_rows(word: str | None, gate: pytest.MonkeyPatch) -> None:
    """Unset, or 1: rows are refused, single tokens are not."""
    if word is None:
        gate.delenv(limits.GATE)
    else:
        gate.setenv(limits.GATE, word)
    e = opened()
    with pytest.raises(Refused) as error:
        e.forward_rows(TEXT[:2])
    assert (error.value.reason, error.value.exit_code) == ("gate-closed", 5)
    e.forward(1)


@pytest.mark.parametrize("word", ["", "0", "9", "08", "2.0", "-2", "two"])
def test_a_garbled_gate_opens_nothing(word: str, gate: pytest.MonkeyPatch) -> None:
    """Any other word is an error of the caller, before anything is read: the config here is none."""
    gate.setenv(limits.GATE, word)
    with pytest.raises(KernelError, match="is no row limit") as error:
        engine.open(binary(), None, engine.Synthetic(1), capacity=8)  # type: ignore[arg-type]
    assert error.value.exit_code == 2


def test_the_gate_is_read_once(gate: pytest.MonkeyPatch) -> None:
    """What the environment says after an engine has opened is for the next one."""
    e = opened()
    gate.delenv(limits.GATE)
    e.forward_rows(TEXT[:8])
    with pytest.raises(Refused, match="the gate is closed"):
        opened().forward_rows(TEXT[:2])


@pytest.mark.parametrize("count", [0, 1, 6, 8, 9])
def test_rows_have_a_range(count: int, gate: pytest.MonkeyPatch) -> None:
    """Fewer than 2, or more than MM: refused, and all planes as before."""
    gate.setenv(limits.GATE, "5")
    e = opened()
    e.forward(3)
    before = planes(e)
    with pytest.raises(Refused) as error:
        e.forward_rows(TEXT[:count])
    assert error.value.reason == "rows-range" and planes(e) == before and e.slab() == {}


def test_rows_that_have_not_run_are_not_there() -> None:
    """Outputs of rows are refused before the first rows, and single tokens leave the last rows' outputs alone."""
    e = opened()
    e.forward(1)
    for ask in (e.hidden_rows, e.logits_rows, e.argmax_rows):
        with pytest.raises(Refused) as error:
            ask()
        assert error.value.reason == "no-rows"
    left = at_once(e, TEXT[:3])
    e.forward(2)
    assert (e.hidden_rows().tobytes(), e.logits_rows().tobytes(), e.argmax_rows()) == left


def test_a_slab_beyond_the_limit_is_refused_and_the_engine_goes_on() -> None:
    """With the bytes of model and slab rows run; with one byte less they are refused, and single tokens run."""
    size = sum(plane.bytes for plane in state.slab(CONFIG, 40, 8))
    enough = forward.needed_bytes(CONFIG, 40, "q4") + size
    opened(limit_bytes=enough).forward_rows(TEXT[:2])
    e = opened(limit_bytes=enough - 1)
    for _ in range(2):
        with pytest.raises(Refused) as error:
            e.forward_rows(TEXT[:2])
        assert error.value.reason == "limit-bytes" and e.cursor == 0
    e.forward(1)


def test_what_was_not_made_is_not_counted() -> None:
    """Bytes count once they are taken: a refused piece, or one that fails to be made, leaves room for the next."""
    memory = limits.Memory(10)
    with pytest.raises(ZeroDivisionError):
        memory.take("a fault", 8, lambda: 1 // 0)
    assert memory.take("a piece", 8, lambda: "made") == "made"
    with pytest.raises(Refused, match="another needs 3 bytes beside 8, the limit is 10"):
        memory.take("another", 3, lambda: "made")
    assert memory.take("the rest", 2, lambda: "made") == "made"
