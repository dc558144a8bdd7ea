"""mark and rollback: what they copy, what they refuse, and that nothing is left of what was taken back."""

import sys
from collections.abc import Callable
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kernels import __main__, artifact
from kernels.engine.errors import KernelError
from kernels.tools import mark_refusals, rb, schedules
from kernels.tools.models import CHECKPOINT, Model
from kernels.tools.watch import Moved, Watched

HYBRID = Model("tiny", "hybrid")
SMALL = Model(CHECKPOINT, None)
CAPACITY, ROWS = 24, 8
ONE = ("--shape", "tiny", "--layers", "hybrid", "--rows", "2")


@cache
def opened() -> artifact.Artifact:
    return artifact.load(artifact.tree())


def engine(**limits: int) -> tuple[Any, Watched]:
    """A small hybrid engine, and what its device notes."""
    made, device, _weights = SMALL.open(opened(), **{"capacity": CAPACITY, "rows": ROWS, **limits})
    return made, device


def moved(device: Watched, *verbs: Callable[[], object]) -> Moved:
    """What these verbs moved."""
    before = device.moved
    for verb in verbs:
        verb()
    return device.moved.since(before)


def module(name: str) -> Any:
    """A module of the opened artifact, whose classes are its own."""
    return sys.modules[f"{opened().engine.__name__}.{name}"]


def planes(e: Any) -> dict[str, bytes]:
    return {name: plane.tobytes() for name, plane in e.planes().items()}


def test_the_state_is_back_and_goes_on_as_if_nothing_had_been() -> None:
    """After a rollback every plane has its marked bytes; after other tokens it has those that one without a try has."""
    e, _device = engine()
    plain, _device = engine()
    for token in (17, 3, 250):
        e.forward(token)
        plain.forward(token)
    before = planes(e)
    e.mark()
    e.forward_rows([1, 2, 3, 4, 5])
    assert planes(e) != before
    e.rollback()
    assert planes(e) == before and e.cursor == 3
    e.forward_rows([9, 8])
    for token in (9, 8):
        plain.forward(token)
    assert planes(e) == planes(plain)


def test_the_first_mark_allocates_and_no_other() -> None:
    """An engine that does not mark holds no snapshot; the first mark takes S and history of every GDN layer, once."""
    e, device = engine()
    assert moved(device, lambda: e.forward(17)).allocated == 0
    assert moved(device, e.mark).allocated == rb.snapshot_bytes(e.config)
    assert moved(device, e.mark, e.rollback, e.mark).allocated == 0


def test_a_mark_copies_on_the_device_alone() -> None:
    """A mark and a rollback run no kernel, read nothing, and write nothing but the cursor."""
    e, device = engine()
    size = rb.snapshot_bytes(e.config)
    e.forward(17)
    e.mark()
    assert moved(device, e.mark) == Moved(copied=size)
    assert moved(device, e.rollback) == Moved(copied=size, written=4)


def test_attention_alone_has_nothing_to_copy() -> None:
    """Where no layer is overwritten in place a rollback moves the cursor, and that is all."""
    e, device, _weights = Model("tiny", "attn").open(opened(), capacity=CAPACITY, rows=ROWS)
    e.forward(17)
    assert moved(device, e.mark) == Moved()
    e.forward_rows([1, 2, 3])
    assert moved(device, e.rollback) == Moved(written=4) and e.cursor == 1


def test_the_limit_holds_model_and_snapshot() -> None:
    """A mark is taken within exactly the bytes of model and snapshot."""
    _e, device = engine()
    whole = device.moved.allocated + rb.snapshot_bytes(SMALL.config(opened()))
    e, _device = engine(limit_bytes=whole)
    e.forward(17)
    e.mark()
    e.rollback()
    assert e.cursor == 1


def test_a_refused_snapshot_leaves_an_engine_that_goes_on() -> None:
    """Beyond the limit nothing is marked and nothing changes; there is no mark afterwards either."""
    _e, device = engine()
    e, _device = engine(limit_bytes=device.moved.allocated)
    e.forward(17)
    before = planes(e)
    for verb, reason in (("mark", "limit-bytes"), ("rollback", "mark-missing")):
        with pytest.raises(module("errors").Refused) as error:
            getattr(e, verb)()
        assert (error.value.exit_code, error.value.reason) == (5, reason)
    assert planes(e) == before


@pytest.mark.parametrize("case", mark_refusals.CASES)
def test_each_refusal_has_its_reason(tmp_path: Path, case: str) -> None:
    """The last word is refused with its reason, and the state on either side is the same."""
    code, word, run = mark_refusals.CASES[case]
    with pytest.raises(module("errors").Refused) as error:
        run(opened(), tmp_path)
    assert (error.value.exit_code, error.value.reason) == (code, word)
    assert (tmp_path / "before.bin").read_bytes() == (tmp_path / "after.bin").read_bytes() != b""


class Rewinding(RuleBasedStateMachine):
    """Any order of verbs against the state that the kept tokens reach one by one; the model is a list of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.engine, self.serial = engines()
        self.engine.reset()
        self.tokens: list[int] = []
        self.marked: list[int] | None = None
        self.drawn = count()

    def fresh(self, wanted: int) -> list[int]:
        """Tokens that have not been, so that what was taken back never comes again by chance."""
        return [(next(self.drawn) * 7 + 1) % self.engine.config.vocab for _ in range(wanted)]

    @precondition(lambda self: len(self.tokens) < CAPACITY)
    @rule()
    def one(self) -> None:
        self.tokens += self.fresh(1)
        self.engine.forward(self.tokens[-1])

    @precondition(lambda self: len(self.tokens) + 2 <= CAPACITY)
    @rule(rows=st.integers(2, ROWS))
    def rows(self, rows: int) -> None:
        tokens = self.fresh(min(rows, CAPACITY - len(self.tokens)))
        self.engine.forward_rows(tokens)
        self.tokens += tokens

    @rule()
    def mark(self) -> None:
        self.engine.mark()
        self.marked = list(self.tokens)

    @rule()
    def rollback(self) -> None:
        if self.marked is None:
            with pytest.raises(module("errors").Refused, match="mark first"):
                self.engine.rollback()
        else:
            self.engine.rollback()
            self.tokens, self.marked = self.marked, None

    @rule()
    def reset(self) -> None:
        self.engine.reset()
        self.tokens, self.marked = [], None

    @invariant()
    def is_the_serial_state(self) -> None:
        assert planes(self.engine) == reached(tuple(self.tokens))


@cache
def engines() -> tuple[Any, Any]:
    """One for the machine, one for the tokens one by one."""
    return engine()[0], engine()[0]


@cache
def reached(tokens: tuple[int, ...]) -> dict[str, bytes]:
    """The state behind tokens that came one by one, from nothing."""
    serial = engines()[1]
    serial.reset()
    for token in tokens:
        serial.forward(token)
    return planes(serial)


Rewinding.TestCase.settings = settings(max_examples=25, stateful_step_count=16, deadline=None)
TestRewinding = Rewinding.TestCase


def test_every_k_of_every_m_is_tried_twice() -> None:
    """M rows with k of them right, for every k, in two rounds; each try begins where the one before ended."""
    tries = rb.planned((2, 8))
    assert [(this.rows, this.right) for this in tries[:6]] == [(2, 0), (2, 0), (2, 1), (2, 1), (2, 2), (2, 2)]
    assert {(this.rows, this.right) for this in tries} == {(m, k) for m in (2, 8) for k in range(m + 1)}
    assert all(one.end == other.at for one, other in pairwise(tries))


def test_both_prints_a_table_and_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each M: planes, bytes, how many states differ, their digest."""
    assert rb.main([*ONE, "--form", "both"]) == 0
    title, line = (text.split() for text in capsys.readouterr().out.splitlines())
    assert title == ["model", "M", "tries", "planes", "bytes", "differing", "digest"]
    assert line[:4] == ["tiny-hybrid", "2", "6", "9"] and line[5] == "0" and len(line[6]) == 64


def test_a_forgotten_plane_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rollback that leaves one plane as it is, exit is 1 and a line has the plane, M, k and round."""
    snapshot = module("snapshot").Snapshot
    plain = snapshot._copies

    def forgets(self: Any) -> Any:
        save, restore = plain(self)
        return save, restore[1:]

    monkeypatch.setattr(snapshot, "_copies", forgets)
    assert rb.main([*ONE, "--form", "both"]) == 1
    assert "tiny-hybrid M=2 k=0 at 1, round 1: layers.0.state differs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tool", "forms", "more"),
    [(rb, ("singles", "rolled"), ONE), (schedules, ("serial", "scheduled"), (*ONE[:4], "--seeds", "2"))],
)
def test_both_forms_leave_the_same_by_other_launches(
    tmp_path: Path, tool: Any, forms: tuple[str, str], more: tuple[str, ...]
) -> None:
    """The same states, and launches that differ."""
    left: dict[str, list[dict[str, bytes]]] = {}
    for leave in ("", "launches"):
        for form in forms:
            out = tmp_path / f"{leave}{form}"
            chosen = ("--leave", leave) if leave else ()
            assert tool.main([*more, "--form", form, *chosen, "--out", str(out)]) == 0
            left.setdefault(leave, []).append({path.name: path.read_bytes() for path in out.glob("*.*[0-9]")})
    assert left[""][0] == left[""][1] and all(left[""][0].values())
    assert left["launches"][0].keys() == left["launches"][1].keys() == {"launches.i32"}
    assert left["launches"][0] != left["launches"][1]


def test_what_moves_is_what_arithmetic_says(tmp_path: Path) -> None:
    """For every kind of layers the counted bytes and launches are the expected ones."""
    for form in ("expected", "rolled"):
        command = ["--shape", "tiny", "--layers", "attn,gdn,hybrid", "--rows", "2", "--leave", "moved"]
        assert rb.main([*command, "--form", form, "--out", str(tmp_path / form)]) == 0
    first, second = ((tmp_path / form / "moved.u32").read_bytes() for form in ("expected", "rolled"))
    assert first == second and any(first)


def test_a_schedule_is_read_as_it_is_written() -> None:
    """Tokens that a rollback does not keep are wrong ones, and those that it keeps come again."""
    made = schedules.steps("one mark rows3 one rollback2 rows2", list(range(10, 40)), 100)
    assert [(step.verb, step.tokens, step.state) for step in made] == [
        ("one", (10,), (10,)),
        ("mark", (), (10,)),
        ("rows", (11, 12, 14), (10, 11, 12, 14)),
        ("one", (15,), (10, 11, 12, 14, 15)),
        ("rollback", (11, 12), (10, 11, 12)),
        ("rows", (13, 14), (10, 11, 12, 13, 14)),
    ]


def test_drawn_schedules_are_legal_and_hold_every_verb() -> None:
    """Each can be read, and together they have rollbacks of many sizes, and marks that replace marks."""
    drawn = [schedules.drawn(seed) for seed in range(12)]
    assert all(schedules.steps(words, range(400), 500) for words in drawn) and len(set(drawn)) == 12
    words = set(" ".join(drawn).split())
    assert words >= {"one", "mark", *(f"rows{n}" for n in range(2, 9)), *(f"rollback{n}" for n in range(9))}
    assert any("mark one mark" in line or "mark rows" in line for line in drawn)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("jump", "word 'jump': is none of a schedule"),
        ("rollback1", "word 0 has no such mark"),
        ("mark one rollback2", "word 2 has no such mark"),
        ("mark one rollback1 rollback0", "word 3 has no such mark"),
    ],
)
def test_a_schedule_that_means_nothing_is_refused(words: str, says: str) -> None:
    """An unknown word, a rollback without a mark, or to more tokens than there were."""
    with pytest.raises(KernelError, match=says):
        schedules.steps(words, range(10), 20)


USAGE = [
    (("rb", *ONE, "--form", "rolled"), "--out is needed"),
    (("rb", *ONE, "--form", "both", "--out", "unused"), "leaves nothing"),
    (("rb", *ONE[:5], "1", "--form", "both"), "give numbers in 2..8"),
    (("rb", "--shape", "huge", *ONE[2:], "--form", "both"), "give some of tiny, mini64, 27b, hf_small, hf_small-f32"),
    (("schedules", *ONE[:4], "--seeds", "0", "--form", "serial", "--out", "unused"), "give 1..1024"),
    (("schedules", *ONE[:4], "--seeds", "1", "--form", "serial"), "--out is needed"),
]


@pytest.mark.parametrize(("command", "words"), USAGE, ids=[words for _command, words in USAGE])
def test_a_wrong_argument_is_named(command: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 with the word for it."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(command)
    assert ended.value.code == 2 and words in capsys.readouterr().err
