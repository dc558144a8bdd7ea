"""spec_verify and generate: what drafts make of a text, which is nothing."""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import __main__, artifact
from kernels.engine.spec import right_rows
from kernels.tools import generate, spec_text
from kernels.tools.models import CHECKPOINT, FIXTURES, Model

SMALL = Model(CHECKPOINT, None)
PROMPT, CAPACITY, ROWS = (17, 3, 250), 24, 8
FOLDER = FIXTURES / CHECKPOINT
RUN = ("--checkpoint", str(FOLDER), "--weights", "q4", "--tokens", str(FOLDER / "tokens.i32"))


@cache
def opened() -> artifact.Artifact:
    return artifact.load(artifact.tree())


def prompted(rows: int = ROWS, capacity: int = CAPACITY) -> tuple[Any, int]:
    """A small hybrid engine behind the prompt, and the token that is due."""
    engine, _device, _weights = SMALL.open(opened(), capacity=capacity, rows=rows)
    for token in PROMPT:
        engine.forward(token)
    return engine, engine.argmax()


def planes(engine: Any) -> dict[str, bytes]:
    return {name: plane.tobytes() for name, plane in engine.planes().items()}


@cache
def truth() -> tuple[int, ...]:
    """The due token and those that follow it."""
    engine, due = prompted()
    tokens = [due]
    while engine.cursor < CAPACITY:
        engine.forward(tokens[-1])
        tokens.append(engine.argmax())
    return tuple(tokens)


def errors() -> Any:
    """The errors of the opened artifact, whose classes are its own."""
    return sys.modules[f"{opened().engine.__name__}.errors"]


@pytest.mark.parametrize("right", range(8))
def test_what_is_right_stays_and_what_follows_is_returned(right: int) -> None:
    """Of seven guesses k are right: k + 1 choices come back, and the state is that of so many single tokens."""
    due, *follows = truth()
    wrong = [(token + 1) % 288 for token in follows[right:7]]
    engine, _due = prompted()
    assert engine.spec_verify(lambda room: [due, *follows[:right], *wrong]) == follows[: right + 1]
    single, _due = prompted()
    for token in (due, *follows[:right]):
        single.forward(token)
    assert planes(engine) == planes(single)


def test_a_draft_is_told_the_room() -> None:
    """As many rows as the gate lets through, and no more than the context still holds."""
    told: list[int] = []

    def draft(room: int) -> Sequence[int]:
        told.append(room)
        return (9,)

    engine, _due = prompted(rows=4, capacity=8)
    for _round in range(5):
        engine.spec_verify(draft)
    assert told == [4, 4, 3, 2, 1]


def test_a_draft_of_one_token_is_a_forward() -> None:
    """Without a guess a token is run as ever, and no slab or snapshot is taken."""
    engine, device, _weights = SMALL.open(opened(), capacity=CAPACITY, rows=ROWS)
    taken = device.moved.allocated
    engine.forward(17)
    single, _device, _weights = SMALL.open(opened(), capacity=CAPACITY, rows=ROWS)
    single.forward(17)
    single.forward(3)
    assert engine.spec_verify(lambda room: (3,)) == [single.argmax()]
    assert planes(engine) == planes(single) and device.moved.allocated == taken


@pytest.mark.parametrize("right", [0, 1])
def test_no_mark_is_left(right: int) -> None:
    """Whether the guess was right or not, there is nothing to roll back to afterwards."""
    due, follows, *_rest = truth()
    engine, _due = prompted()
    engine.mark()
    engine.spec_verify(lambda room: (due, follows if right else (follows + 1) % 288))
    with pytest.raises(errors().Refused, match="the mark has been used"):
        engine.rollback()


def test_an_error_of_the_draft_is_the_callers() -> None:
    """What a draft raises passes, and the state and the mark are what they were."""
    engine, _due = prompted()
    engine.mark()
    before = planes(engine)

    def draft(room: int) -> Sequence[int]:
        raise RuntimeError("no idea")

    with pytest.raises(RuntimeError, match="no idea"):
        engine.spec_verify(draft)
    assert planes(engine) == before
    engine.rollback()


RIGHT = [
    ((5,), (1,), 1),
    ((5, 1), (1, 2), 2),
    ((5, 2), (1, 2), 1),
    ((5, 1, 2, 3), (1, 2, 9, 9), 3),
    ((5, 9, 2, 3), (1, 2, 3, 4), 1),
    ((5, 1, 2, 3), (1, 2, 3, 4), 4),
]


@pytest.mark.parametrize(("tokens", "chosen", "rows"), RIGHT)
def test_rows_stay_up_to_the_first_wrong_guess(tokens: tuple[int, ...], chosen: tuple[int, ...], rows: int) -> None:
    """A guess is right if the row before it chose it; what follows a wrong one is never right."""
    assert right_rows(tokens, chosen) == rows


GUESSES = [
    ("ababa", 3, "ba"),
    ("abcabcab", 3, "cab"),
    ("abcd", 3, ""),
    ("xaybxazbxa", 2, "zb"),
    ("aaaa", 2, "a"),
    ("a", 3, ""),
    ("abab", 0, ""),
]


@pytest.mark.parametrize(("seen", "most", "guess"), GUESSES, ids=[seen for seen, _most, _guess in GUESSES])
def test_an_ngram_guesses_what_followed_last(seen: str, most: int, guess: str) -> None:
    """The longest match of the latest tokens counts, and of those the latest; never more than is wanted."""
    found = generate.ngram([*seen.encode()], most, longest=7)
    assert bytes(found) == guess.encode()
    assert len(generate.ngram([*seen.encode()], most, longest=1)) <= 1


def test_drafts_are_what_they_are_called() -> None:
    """Of six true tokens a perfect draft has six, a half-right one the first three, a wrong one none."""
    right = (1, 2, 3, 4, 5, 6)
    agree = {
        name: [guess == token for guess, token in zip(draft(right, 100, 3), right, strict=True)]
        for name, draft in spec_text.DRAFTS.items()
    }
    assert agree["perfect"] == [True] * 6 and agree["wrong"] == [False] * 6
    assert agree["half"] == [True] * 3 + [False] * 3
    drawn = [tuple(spec_text.DRAFTS["random"](right, 100, at)) for at in range(40)]
    assert 0 < sum(a == b for row in drawn for a, b in zip(row, right, strict=True)) < 40 * 6 and len(set(drawn)) > 20


def test_rounds_are_counted_from_the_text() -> None:
    """A perfect draft of three takes a quarter of the rounds; a wrong one as many as there are tokens."""
    text, after = tuple(range(8)), 8
    prompt = (0,) * spec_text.PROMPT
    drafts = {name: spec_text.guesses(name, 3, (*text, after), 100) for name in spec_text.DRAFTS}
    found = {name: spec_text.rounds(prompt, text, draft) for name, draft in drafts.items()}
    assert found["perfect"] == (4, 4) and found["wrong"] == (1,) * 8 and found["half"] == (3, 3, 2)
    assert sum(found["random"]) == 8


@pytest.mark.parametrize("leave", ["text", "rounds"])
def test_drafts_change_nothing_but_the_rounds(tmp_path: Path, leave: str) -> None:
    """Text and planes are those without a draft; rounds are those that arithmetic says."""
    forms = {"text": "plain", "rounds": "expected"}
    command = ["--shape", "tiny", "--layers", "hybrid", "--drafts", "half,random", "--lengths", "2", "--leave", leave]
    for form in (forms[leave], "spec"):
        assert spec_text.main([*command, "--form", form, "--out", str(tmp_path / form)]) == 0
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / form).glob("*.*[0-9]")} for form in (forms[leave], "spec")
    )
    assert first == second and all(first.values()) and len(first) == (2 if leave == "text" else 1)


def test_generate_says_the_same_with_and_without_drafts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The text is left, and printed with the rounds that it took."""
    for draft in ("none", "ngram"):
        out = str(tmp_path / draft)
        assert generate.main([*RUN, "--count", "12", "--draft", draft, "--guesses", "3", "--out", out]) == 0
    first, second = ((tmp_path / draft / "text.i32").read_bytes() for draft in ("none", "ngram"))
    assert first == second and len(first) == 4 * 12
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "text: " + " ".join(map(str, np.frombuffer(first, "<i4")))
    assert lines[1] == "rounds: 12 for 12 tokens, 1 in one at most"


def test_ngrams_of_a_text_that_comes_again_are_right() -> None:
    """What followed a token once is guessed behind it, and kept where the model says so again."""
    due, *follows = truth()
    engine, _due = prompted()
    guess = generate.ngram([due, *follows[:5], due], 5, longest=5)
    assert guess == follows[:5] and engine.spec_verify(lambda room: [due, *guess]) == follows[:6]


def test_an_artifact_without_the_entry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts need spec_verify; without one nothing has run."""
    monkeypatch.delattr(opened().engine.Engine, "spec_verify")
    assert __main__.main(["generate", *RUN, "--count", "2", "--draft", "ngram"]) == 5


TINY = ("--shape", "tiny", "--layers", "attn")
OUT, ROUNDS = ("--out", "unused"), ("--leave", "rounds")
USAGE = [
    (("generate", *RUN, "--count", "0", "--draft", "none"), "--count of 1 or more"),
    (("generate", *RUN, "--count", "2", "--draft", "none", "--guesses", "8"), "--guesses 1..7"),
    (("spec_text", *TINY, "--drafts", "lucky", "--lengths", "1", "--form", "spec"), "give some of perfect"),
    (("spec_text", *TINY, "--drafts", "half", "--lengths", "8", "--form", "spec"), "--lengths in 1..7"),
    (("spec_text", *TINY, "--drafts", "half", "--lengths", "1", "--form", "expected", *OUT), "--leave rounds has"),
    (
        ("spec_text", *TINY, "--drafts", "half", "--lengths", "1", "--form", "plain", *ROUNDS, *OUT),
        "--leave rounds has",
    ),
]


@pytest.mark.parametrize(("command", "words"), USAGE, ids=range(len(USAGE)))
def test_a_wrong_argument_is_named(command: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 with the word for it."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(command)
    assert ended.value.code == 2 and words in capsys.readouterr().err
