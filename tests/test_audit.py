"""audit.py and derive.py: every claim of a record is derived again, so that a forgery is found though the chain holds.

The forger here is thorough: records are numbered and chained anew, objects archived under their digests, git amended.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline import audit, canonical, claims, derive, kit, protocol, timing
from pipeline.claims import Artifact, Baseline, Digest, Input, Tool
from pipeline.errors import (
    ArchiveError,
    BaselineMismatch,
    HistoryError,
    LandingError,
    LedgerError,
    MachineError,
    ToolchainMoved,
)
from pipeline.house import House
from pipeline.proof import CANDIDATE, Evidence, Plan
from pipeline.proof import Tree as Planned
from pipeline.records import Attempt, Record, Result
from tests import drawn, faults, history, landings, scratch, walks

OTHER = "0" * 64
#       1        2       3        4        5       6
# block sum: attempt, result, promote; block scale: attempt, result, promote


@pytest.fixture
def where(tmp_path: Path) -> House:
    return landings.house(tmp_path, "scale")


@pytest.fixture
def apart(tmp_path: Path) -> House:
    """The same ledger where git says nothing about it: what is found there is found by deriving it again."""
    return landings.apart(tmp_path, "scale")


def audited(where: House, **options: Any) -> list[str]:
    """What an audit of a house that has cached nothing says."""
    said: list[str] = []
    audit.audit(dataclasses.replace(where), said.append, **options)
    return said


def forged(where: House, sequence: int, **changes: Any) -> None:
    """A record says something else; the chain agrees with it, and so does git where it has a say."""
    landings.forge(where, sequence, **changes)
    anew(where)


def anew(where: House) -> None:
    """Git knows this ledger and no other."""
    if (where.root / ".git").exists():
        scratch.git(where.root, "checkout", "-q", "--orphan", "anew")
        scratch.commit(where.root, "all of it, anew")


def record(where: House, sequence: int) -> Any:
    return where.ledger.read()[sequence - 1]


def test_what_was_landed_is_sound(where: House) -> None:
    """One line for each thing that was derived, and nothing is written."""
    before = landings.stored(where)
    assert audited(where) == [
        "ledger    6 records, each follows the one before",
        f"archive   9 objects, {sum(len(d) for n, d in before.items() if 'archive' in n):,} bytes, "
        "every one is what its name says",
        "history   no commit changed, renamed or removed a record or an archived object",
        "claims    every record follows from its archived plan, evidence and source",
        "views     current and previous are what the newest promotes name",
    ]
    assert landings.stored(where) == before
    assert "history   every record and object of HEAD is still there" in audited(where, base="HEAD")


def test_an_empty_ledger_is_sound(tmp_path: Path) -> None:
    """Nothing is claimed."""
    assert audited(landings.house(tmp_path, None))[0] == "ledger    0 records, each follows the one before"


def _timing(result: Result, **changes: Any) -> tuple[claims.Timing, ...]:
    return (dataclasses.replace(result.timing[0], **changes),)


def _check(result: Result, i: int = 0, **changes: Any) -> tuple[claims.Check, ...]:
    checks = list(result.checks)
    checks[i] = dataclasses.replace(checks[i], **changes)
    return tuple(checks)


def _proofs(result: Result, **changes: Any) -> tuple[claims.Check, ...]:
    first = result.checks[0]
    return _check(
        result, counterproofs=(dataclasses.replace(first.counterproofs[0], **changes), *first.counterproofs[1:])
    )


def _sizes(result: Result, **changes: Any) -> claims.Sizes:
    return dataclasses.replace(result.sizes, **changes)


def _source(result: Any, **changes: Any) -> claims.Source:
    return dataclasses.replace(result.source, **changes)


def _build(result: Any, **changes: Any) -> claims.Build:
    return dataclasses.replace(result.build, **changes)


# claim of result 5 -> how the record is changed, what the audit says
CLAIMS: dict[str, tuple[Callable[[Any], dict[str, Any]], str]] = {
    "verdict": (lambda r: {"verdict": "refused"}, "its verdict does not follow"),
    "a reason less": (lambda r: {"reasons": r.reasons[1:]}, "its reasons does not follow"),
    "a reason in other words": (lambda r: {"reasons": ("fine", *r.reasons[1:])}, "its reasons does not follow"),
    "a check less": (lambda r: {"checks": r.checks[1:]}, "its checks does not follow"),
    "a check red": (lambda r: {"checks": _check(r, verdict="red")}, "its checks does not follow"),
    "a check's command": (lambda r: {"checks": _check(r, argv=(("true",),))}, "its checks does not follow"),
    "a check's outputs": (
        lambda r: {"checks": _check(r, outputs=dataclasses.replace(r.checks[0].outputs, sha256=OTHER))},
        "its checks does not follow",
    ),
    "a check's inputs": (
        lambda r: {"checks": _check(r, inputs=(Input(name="x", origin="y", digest=OTHER),))},
        "its checks does not follow",
    ),
    "what several checks read": (
        lambda r: {"inputs": (dataclasses.replace(r.inputs[0], digest=OTHER), *r.inputs[1:])},
        "its inputs does not follow",
    ),
    "a check's share of it": (lambda r: {"checks": _check(r, also=())}, "its checks does not follow"),
    "a check proved earlier": (lambda r: {"checks": _check(r, green_in=2)}, "its checks does not follow"),
    "differing files": (lambda r: {"checks": _check(r, differing=1)}, "its checks does not follow"),
    "a counterproof": (lambda r: {"checks": _proofs(r, outcome="missed")}, "its checks does not follow"),
    "a counterproof's place": (lambda r: {"checks": _proofs(r, where="elsewhere")}, "its checks does not follow"),
    "faster": (lambda r: {"timing": _timing(r, faster=13, slower=0)}, "its timing does not follow"),
    "slower": (lambda r: {"timing": _timing(r, slower=r.timing[0].slower + 1)}, "its timing does not follow"),
    "ties": (lambda r: {"timing": _timing(r, ties=1)}, "its timing does not follow"),
    "p": (lambda r: {"timing": _timing(r, p_numerator=r.timing[0].p_numerator + 1)}, "its timing does not follow"),
    "the ratio": (lambda r: {"timing": _timing(r, ratio_ppm=r.timing[0].ratio_ppm - 1)}, "its timing does not follow"),
    "the interval": (lambda r: {"timing": _timing(r, interval_ppm=(1, 2))}, "its timing does not follow"),
    "the seed": (lambda r: {"timing": _timing(r, seed=1)}, "its timing does not follow"),
    "the timing's verdict": (lambda r: {"timing": _timing(r, verdict="gain")}, "its timing does not follow"),
    "the control": (lambda r: {"timing": _timing(r, control=None)}, "its timing does not follow"),
    "the samples": (lambda r: {"timing": _timing(r, samples=Digest(sha256=OTHER))}, "its timing does not follow"),
    "no timing": (lambda r: {"timing": ()}, "its timing does not follow"),
    "a figure": (
        lambda r: {"figures": (claims.Figure(name="speed", value=9, unit="GB/s", n=1, samples=(9,)),)},
        "its figures does not follow",
    ),
    "the size before": (
        lambda r: {"sizes": _sizes(r, artifact=(r.sizes.artifact[0] + 1, r.sizes.artifact[1]))},
        "its sizes are not those of the archived artifacts",
    ),
    "the size after": (
        lambda r: {"sizes": _sizes(r, artifact=(r.sizes.artifact[0], r.sizes.artifact[1] - 1))},
        "its sizes are not those of the archived artifacts",
    ),
    "a section's size": (
        lambda r: {"sizes": _sizes(r, sections={**r.sizes.sections, ".text": (1, 2)})},
        "its sizes are not those of the archived artifacts",
    ),
    "a kernel left out": (
        lambda r: {"sizes": _sizes(r, kernels={})},
        "its sizes are not those of the archived artifacts",
    ),
    "the sources": (
        lambda r: {"source": _source(r, sources=Digest(sha256=OTHER))},
        "its source is not what attempt 4",
    ),
    "the tools": (
        lambda r: {"source": _source(r, tools=Digest(sha256=OTHER))},
        "its source is not what attempt 4",
    ),
    "the git tree": (lambda r: {"source": _source(r, git_tree="0" * 40)}, "its source is not what attempt 4"),
    "the commit": (lambda r: {"source": _source(r, git_commit="0" * 40)}, "its source is not what attempt 4"),
    "the increment": (lambda r: {"source": _source(r, increment=())}, "its source is not what attempt 4"),
    "no source": (lambda r: {"source": _source(r, archive=None)}, "it names no source"),
    "another block's source": (
        lambda r: {"source": _source(r, archive=Digest(sha256=SUM_SOURCE[0]))},
        "its archived source is not the tree that was proved",
    ),
    "the build command": (lambda r: {"build": _build(r, argv=(("cc",),))}, "its build is not what attempt 4"),
    "the toolchain": (
        lambda r: {"build": _build(r, toolchain=(Tool(name="cc", version="1", digest=OTHER),))},
        "its build is not what attempt 4",
    ),
    "the baseline": (
        lambda r: {"baseline": Baseline(sequence=3, sha256=OTHER)},
        "its baseline is not what attempt 4",
    ),
    "the artifact": (
        lambda r: {"artifact": Artifact(name="adder.so", sha256=OTHER)},
        "its artifact is not what attempt 4",
    ),
    "the artifact's name": (
        lambda r: {"artifact": Artifact(name="other.so", sha256=r.artifact.sha256)},
        "its artifact is not what attempt 4",
    ),
    "the title": (lambda r: {"title": "something else"}, "its title is not what attempt 4"),
    "the limits": (lambda r: {"limits": ("none",)}, "its limits is not what attempt 4"),
    "the block": (lambda r: {"block": "clip"}, "its block is not what attempt 4"),
    "the target": (lambda r: {"target": "cuda"}, "its target is not what attempt 4"),
    "the revision": (lambda r: {"revision": 1}, "its revision is not what attempt 4"),
    "the rules": (lambda r: {"rules": 1}, "its rules is not what attempt 4"),
    "the pipeline": (lambda r: {"pipeline": Digest(sha256=OTHER)}, "its pipeline is not what attempt 4"),
    "the environment": (
        lambda r: {"environment": {"LD_PRELOAD": "x.so"}},
        "its environment is not what attempt 4",
    ),
    "the pinned builds": (lambda r: {"builds": (drawn.pinned(),)}, "its builds is not what attempt 4"),
    "the machine": (lambda r: {"machine": {"model": "a faster one"}}, "its machine does not follow"),
    "the time": (lambda r: {"time": {"startedOn": "yesterday"}}, "its time does not follow"),
    "another attempt": (lambda r: {"attempt": 1}, "record 1 was answered by record 2 before"),
    "no attempt": (lambda r: {"attempt": 3}, "it refers to record 3, which is no earlier attempt"),
    "a later attempt": (lambda r: {"attempt": 9}, "it refers to record 9, which is no earlier attempt"),
    "itself": (lambda r: {"attempt": 5}, "it refers to record 5, which is no earlier attempt"),
    "another plan": (lambda r: {"plan": Digest(sha256=OTHER)}, "its plan is not what attempt 4"),
}
SUM_SOURCE: list[str] = []


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_of_a_result_that_was_altered_is_found(apart: House, claim: str) -> None:
    """Whatever it is; the error names the record's file, exit code 3."""
    SUM_SOURCE[:] = [record(apart, 2).source.archive.sha256]
    change, says = CLAIMS[claim]
    forged(apart, 5, **change(record(apart, 5)))
    with pytest.raises(LedgerError, match=says) as caught:
        audited(apart)
    assert "ledger/000005.json: " in str(caught.value)
    assert caught.value.exit_code == 3


def test_every_field_of_a_result_is_among_the_claims_above() -> None:
    """But for how the command was called, which no object can bear out; and no record holds more."""
    changed = {name for change, _ in CLAIMS.values() for name in change(_AnyResult())}
    fields = {field.name for field in dataclasses.fields(Result)}
    assert fields - changed == {"argv", "sequence", "previous", "evidence"}


class _AnyResult:
    """Stands for any result, to learn which fields a change touches."""

    def __getattr__(self, name: str) -> Any:
        SUM_SOURCE[:] = [OTHER]
        return getattr(drawn.result(), name)


ATTEMPTS: dict[str, tuple[dict[str, Any], str]] = {
    "the artifact": ({"artifact": Artifact(name="adder.so", sha256=OTHER)}, "its artifact is not what its plan says"),
    "the artifact's name": ({"artifact": Artifact(name="x", sha256=OTHER)}, "its artifact is not what its plan says"),
    "the block": ({"block": "clip"}, "its block is not what its plan says"),
    "the target": ({"target": "cuda"}, "its target is not what its plan says"),
    "the revision": ({"revision": 1}, "its revision is not what its plan says"),
    "the baseline": ({"baseline": None}, "its baseline is not what its plan says"),
    "the rules": ({"rules": 1}, "its rules is not what its plan says"),
    "the pipeline": ({"pipeline": Digest(sha256=OTHER)}, "its pipeline is not what its plan says"),
    "the title": ({"title": "x"}, "its title is not what attempt 4"),
    "the plan": ({"plan": Digest(sha256=OTHER)}, "is missing"),
}


@pytest.mark.parametrize("claim", ATTEMPTS)
def test_a_claim_of_an_attempt_that_was_altered_is_found(apart: House, claim: str) -> None:
    """By its plan, or apart the plan says nothing of it, by the result that repeats it."""
    changes, says = ATTEMPTS[claim]
    forged(apart, 4, **changes)
    with pytest.raises((LedgerError, ArchiveError), match=says):
        audited(apart)


PROMOTES: dict[str, tuple[dict[str, Any], str]] = {
    "the artifact": ({"artifact": Artifact(name="adder.so", sha256=OTHER)}, "its artifact is not what result 5"),
    "the block": ({"block": "sum"}, "its block is not what result 5"),
    "the target": ({"target": "cuda"}, "its target is not what result 5"),
    "the revision": ({"revision": 4}, "its revision is not what result 5"),
    "the title": ({"title": "x"}, "its title is not what result 5"),
    "an attempt": ({"result": 4}, "it refers to record 4, which is no earlier result"),
    "itself": ({"result": 6}, "it refers to record 6, which is no earlier result"),
    "another result": ({"result": 2}, "record 2 was answered by record 3 before"),
}


@pytest.mark.parametrize("claim", PROMOTES)
def test_a_claim_of_a_promote_that_was_altered_is_found(apart: House, claim: str) -> None:
    """It repeats the result that it rests on, and a result is promoted once."""
    changes, says = PROMOTES[claim]
    forged(apart, 6, **changes)
    with pytest.raises(LedgerError, match=says):
        audited(apart)


def refuse(where: House) -> House:
    """A refused result is on record and committed: records 7 and 8."""
    landings.edit(where, "totals[i] + x[r * width + i]", "totals[i] - x[r * width + i]")
    scratch.commit(where.root, "a fault")
    assert landings.walk(where, block="scale").code == 1
    scratch.commit(where.root, "refused, and on record")
    return landings.at(where.root)


def test_a_refused_result_is_sound_and_cannot_be_promoted(where: House) -> None:
    """Its candidate is recorded by digest only; a promote of it is found."""
    refused = refuse(where)
    assert record(refused, 8).verdict == "refused"
    assert record(refused, 8).artifact.sha256 not in refused.baselines.objects()
    assert audited(refused)[0].startswith("ledger    8 records")
    book = [*refused.ledger.read()]
    again = dataclasses.replace(record(refused, 6), result=8, artifact=book[7].artifact, revision=1)
    landings.rewrite(refused, [*book, again])
    with pytest.raises(LedgerError, match=r"000009.json: result 8 did not land"):
        audited(refused)


def test_the_size_that_a_refused_candidate_grew_from_is_derived_too(where: House) -> None:
    """What is archived of the two is measured again."""
    refused = refuse(where)
    sizes = record(refused, 8).sizes
    forged(refused, 8, sizes=dataclasses.replace(sizes, artifact=(1, sizes.artifact[1])))
    with pytest.raises(LedgerError, match=r"000008.json: its sizes are not"):
        audited(refused)


def test_a_result_that_was_promoted_twice_is_found(apart: House) -> None:
    """Or an attempt with two results."""
    book = [*apart.ledger.read()]
    landings.rewrite(apart, [*book, book[5]])
    with pytest.raises(LedgerError, match=r"000007.json: record 5 was answered by record 6 before"):
        audited(apart)
    landings.rewrite(apart, [*book, book[4]])
    with pytest.raises(LedgerError, match=r"000007.json: record 4 was answered by record 5 before"):
        audited(apart)


def test_a_landing_that_never_was_is_found(apart: House) -> None:
    """An attempt told again is one of another plan."""
    book = [*apart.ledger.read()]
    landings.rewrite(apart, [*book, book[3]])
    with pytest.raises(LedgerError, match=r"000007.json: what it says of its sequence is not what its plan says"):
        audited(apart)


def test_a_void_names_what_it_takes_back(apart: House) -> None:
    """The same artifact, target and block, and an earlier record."""
    book = [*apart.ledger.read()]
    void = landings_void(record(apart, 5))
    landings.rewrite(apart, [*book, void])
    assert audited(apart)[0].startswith("ledger    7 records")
    for changes, says in (
        ({"voids": 9}, "it refers to record 9"),
        ({"voids": 0}, "it refers to record 0"),
        ({"block": "sum"}, "its block is not what record 5"),
        ({"artifact": Artifact(name="x", sha256=OTHER)}, "its artifact is not what record 5"),
    ):
        landings.rewrite(apart, [*book, dataclasses.replace(void, **changes)])
        with pytest.raises(LedgerError, match=says):
            audited(apart)


def landings_void(about: Record) -> Any:
    """A void of a record."""
    return drawn.void(artifact=about.artifact, target=about.target, block=about.block, voids=about.sequence)


# --- a forger who makes plan, evidence and records agree ---


def retold(where: House, change: Callable[[Plan, Evidence], tuple[Plan, Evidence]], **source: Any) -> None:
    """Landing 4 to 6 is told with another plan and evidence, judged by the real rules, archived and chained."""
    book = [*where.ledger.read()]
    attempt, result = book[3], book[4]
    assert isinstance(attempt, Attempt) and isinstance(result, Result)
    plan, evidence = change(derive.read_plan(where, attempt), derive.read_evidence(where, result))
    evidence = dataclasses.replace(evidence, plan=canonical.sha256(plan.to_bytes()))
    decision = protocol.judge(plan, evidence)
    packed = [kit.squeeze(plan.to_bytes()), kit.squeeze(evidence.to_bytes()), timing.samples_bytes(evidence.samples)]
    digests = [where.baselines.archive(data) for data in packed]
    book[3] = dataclasses.replace(attempt, plan=Digest(sha256=digests[0]), source=_source(attempt, **source))
    book[4] = dataclasses.replace(
        result,
        source=_source(result, **source),
        plan=Digest(sha256=digests[0]),
        evidence=Digest(sha256=digests[1]),
        **landings.said(decision),
    )
    landings.rewrite(where, book)
    anew(where)


def without(plan: Plan, evidence: Evidence, check: str) -> tuple[Plan, Evidence]:
    """No trace of a check."""
    plan = dataclasses.replace(
        plan,
        checks=tuple(row for row in plan.checks if row.id != check),
        jobs=tuple(job for job in plan.jobs if job.check != check),
    )
    kept = {job.id for job in plan.jobs}
    return plan, dataclasses.replace(evidence, jobs=tuple(seen for seen in evidence.jobs if seen.id in kept))


def unplanted(plan: Plan, evidence: Evidence) -> tuple[Plan, Evidence]:
    """One mutant was never planted."""
    name = plan.mutants[0].name
    jobs = tuple(job for job in plan.jobs if job.of != name)
    plan = dataclasses.replace(plan, mutants=plan.mutants[1:], jobs=jobs)
    return plan, dataclasses.replace(evidence, jobs=tuple(s for s in evidence.jobs if not s.id.endswith(f"@{name}")))


def other_fault(plan: Plan, evidence: Evidence) -> tuple[Plan, Evidence]:
    """A mutant's tree holds a larger fault than the manifest's, and every job says so."""
    trees = {**plan.trees, "subtracts": Planned(files=(("adder.c", OTHER, 0o644),), over=CANDIDATE)}
    plan = dataclasses.replace(plan, trees=trees)
    return plan, dataclasses.replace(evidence, jobs=landings.fed(plan, evidence))


def with_plan(**changes: Any) -> Callable[[Plan, Evidence], tuple[Plan, Evidence]]:
    return lambda plan, evidence: (dataclasses.replace(plan, **changes), evidence)


RETOLD: dict[str, tuple[Callable[[Plan, Evidence], tuple[Plan, Evidence]], str]] = {
    "a check left out": (lambda p, e: without(p, e, "factor"), "its checks is not what its source and the ledger ask"),
    "a mutant left out": (unplanted, "its mutants is not what its source and the ledger ask"),
    "another fault planted": (other_fault, "its planted faults is not what its source and the ledger ask"),
    "a wider margin": (with_plan(margin_ppm=900_000), "its numbers is not what its source and the ledger ask"),
    "a laxer alpha": (with_plan(alpha_ppm=1), "its numbers is not what its source and the ledger ask"),
    "no bench": (
        lambda p, e: (dataclasses.replace(p, benches=()), dataclasses.replace(e, samples=())),
        "its benches is not what its source and the ledger ask",
    ),
    "a green record that is none": (
        lambda p, e: (
            dataclasses.replace(without(p, e, "twice")[0], checks=p.checks, green={"twice": 2}),
            without(p, e, "twice")[1],
        ),
        "its green is not what its source and the ledger ask",
    ),
    "another archived artifact": (
        lambda p, e: (dataclasses.replace(p, artifacts={**p.artifacts, "archive:sum": p.artifacts[CANDIDATE]}), e),
        "its earlier artifacts is not what its source and the ledger ask",
    ),
    "other tools of a block": (
        lambda p, e: (dataclasses.replace(p, trees={**p.trees, "tools:sum": p.trees[CANDIDATE]}), e),
        "its earlier tools is not what its source and the ledger ask",
    ),
    "called an identity": (with_plan(identity=True), "its identity is not what its source and the ledger ask"),
    "another gate": (with_plan(gate="none"), "its gate is not what its source and the ledger ask"),
    "another subject": (with_plan(subject="other"), "its subject is not what its source and the ledger ask"),
}


@pytest.mark.parametrize("story", RETOLD)
def test_a_plan_that_asked_for_less_than_is_owed_is_found(apart: House, story: str) -> None:
    """Its verdict follows from it and from the evidence, and yet: the archived manifest asks for something else."""
    change, says = RETOLD[story]
    retold(apart, change)
    with pytest.raises(LedgerError, match=says) as caught:
        audited(apart)
    assert "000005.json" in str(caught.value)


def test_a_landing_told_again_as_it_was_is_sound(apart: House) -> None:
    """So that the test above shows what it says: telling alone changes nothing."""
    retold(apart, lambda plan, evidence: (plan, evidence))
    assert audited(apart)[0].startswith("ledger    6 records")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sources": Digest(sha256=OTHER)}, "its sources is not what its archived source"),
        ({"tools": Digest(sha256=OTHER)}, "its tools is not what its archived source"),
        ({"git_tree": "0" * 40}, "its git tree is not what its archived source"),
        ({"git_tree": None}, "its git tree is not what its archived source"),
    ],
)
def test_a_source_that_attempt_and_result_agree_to_misname_is_found(
    apart: House, change: dict[str, Any], says: str
) -> None:
    """Digests and git's own name of the tree are made again from the archived files."""
    retold(apart, lambda plan, evidence: (plan, evidence), **change)
    with pytest.raises(LedgerError, match=says):
        audited(apart)


def test_evidence_of_another_plan_is_found(apart: House) -> None:
    """Though it is archived, and the record names it."""
    forged(apart, 5, evidence=record(apart, 2).evidence)
    with pytest.raises(LedgerError, match="its evidence cannot be judged: the evidence answers another plan"):
        audited(apart)


def test_objects_that_are_not_what_records_call_them_are_found(apart: House) -> None:
    """A source tar is no plan, and no evidence."""
    archive = record(apart, 5).source.archive
    forged(apart, 5, evidence=archive)
    with pytest.raises(ArchiveError, match="is no evidence"):
        audited(apart)


# --- objects, views, history ---


def test_a_flipped_bit_in_any_object_is_found(where: House) -> None:
    """Whether a record's own rule reads it or not; size, mode and time are as before."""
    for path in sorted(where.baselines.objects_folder.iterdir()):
        faults.flip(path, path.stat().st_size // 2)
        with pytest.raises(ArchiveError, match=path.name):
            audited(where)
        faults.flip(path, path.stat().st_size // 2)
    assert audited(where)


def test_an_object_that_is_gone_is_found(where: House) -> None:
    """Every one that a record names, whichever it is."""
    for path in sorted(where.baselines.objects_folder.iterdir()):
        shutil.move(path, where.root / "aside")
        with pytest.raises((ArchiveError, HistoryError), match=path.name):
            audited(where)
        shutil.move(where.root / "aside", path)
    assert audited(where)


def test_orphans_are_listed_and_no_error(where: House) -> None:
    """What an attempt that was not concluded left behind."""
    digest = where.baselines.archive(b"left over")
    (line,) = [line for line in audited(where) if digest in line]
    assert line == f"archive   {digest} is named by no record (an attempt that was not concluded leaves such)"


def test_a_view_of_another_artifact_is_found(where: House) -> None:
    """The error names the file and both digests."""
    current = next(where.baselines.view("current", landings.TARGET).iterdir())
    was = canonical.sha256(current.read_bytes())
    faults.flip(current)
    with pytest.raises(BaselineMismatch) as caught:
        audited(where)
    assert current.name in str(caught.value)
    assert was in str(caught.value)
    assert canonical.sha256(current.read_bytes()) in str(caught.value)


def test_a_rewritten_ledger_that_agrees_with_itself_is_red_against_a_base(where: House) -> None:
    """A record changed, every hash made again and committed over the old history: not an extension of base."""
    base = scratch.git(where.root, "rev-parse", "HEAD")
    scratch.git(where.root, "branch", "published")
    record_5 = record(where, 5)
    forged(where, 5, argv=("python", "-m", "pipeline", "land", "--honest"))
    assert audited(where)[0].startswith("ledger    6 records"), "no object bears out how a command was called"
    for revision in (base, "published"):
        with pytest.raises(HistoryError, match=r"ledger/000005.json: was changed since"):
            audited(where, base=revision)
    assert record_5 != record(where, 5)


def test_a_ledger_whose_end_was_cut_off_is_red_against_a_base(where: House) -> None:
    """The chain cannot see it; git can."""
    base = scratch.git(where.root, "rev-parse", "HEAD")
    where.ledger.path(6).unlink()
    with pytest.raises(HistoryError, match=r"000006.json"):
        audited(where, base=base)


def test_a_commit_that_changed_a_record_and_one_that_put_it_back_are_found(where: House) -> None:
    """What is permanent may not even have been another for a while."""
    path = where.ledger.path(2)
    kept = path.read_bytes()
    path.write_bytes(kept.replace(b"landed", b"refuse", 1))
    scratch.commit(where.root, "change")
    path.write_bytes(kept)
    scratch.commit(where.root, "and back")
    with pytest.raises(HistoryError, match=r"ledger/000002.json: was changed by commit [0-9a-f]{40}; it is permanent"):
        audited(where)


def test_a_commit_that_a_squash_lost_is_reported_and_no_error(where: House) -> None:
    """Its source is archived, and git's name of the tree is derived from that."""
    commit = record(where, 5).source.git_commit
    scratch.git(where.root, "checkout", "-q", "--orphan", "squashed")
    scratch.commit(where.root, "one commit")
    assert f"history   commit {commit} is not in this history; its source is archived" in audited(where)


def test_an_object_larger_than_a_source_may_be_is_kept(where: House) -> None:
    """An artifact may have 256 MiB: what is archived is held against git whatever its size."""
    where.baselines.archive(bytes(65 << 20))
    scratch.commit(where.root, "a large artifact")
    assert any("is named by no record" in line for line in audited(where))


def test_a_shallow_clone_cannot_be_audited(where: House, tmp_path: Path) -> None:
    """Exit code 4: what the history says cannot be seen."""
    scratch.git(tmp_path, "clone", "-q", "--depth", "1", f"file://{where.root}", "shallow")
    with pytest.raises(MachineError, match="shallow"):
        audited(landings.at(tmp_path / "shallow"))


@pytest.mark.parametrize("records", [9, audit.SPAN * 2 + 6])
def test_a_record_that_does_not_hold_is_said_before_what_git_lacks(where: House, records: int) -> None:
    """However long the ledger is."""
    grown = history.grow(where, records)
    (grown.root / ".git" / "shallow").write_text(scratch.git(grown.root, "rev-parse", "HEAD") + "\n")
    with pytest.raises(MachineError, match="shallow"):
        audited(grown)
    forged(grown, 2, reasons=("because",))
    with pytest.raises(LedgerError, match=r"000002.json"):
        audited(grown)


def test_a_process_of_the_audit_that_something_killed_is_no_verdict(where: House) -> None:
    """Exit code 4, and one line: it is neither sound nor broken."""
    grown = history.grow(where, audit.SPAN * 20)
    scene = walks.Scene(grown.root, walks.home(grown.root.parent / "elsewhere"))
    process = scene.start("audit", "--subject", "adder")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    walks.until(lambda: len(children.read_text().split()) > 1)  # git runs one at a time
    os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
    done = walks.ended(process)
    assert (done.code, done.err.split(": ")[:2]) == (4, ["MachineError", "audit"]), done


# --- deep ---


def test_deep_builds_every_landed_artifact_again(where: House) -> None:
    """From its archived source, by the manifest that lies in it."""
    said = audited(where, deep=True)
    assert said[-1] == "deep      2 of 2 artifacts rebuilt from their archived sources"
    assert not (where.root / ".landing" / "deep").exists()


def _with_compiler(where: House, digest: str) -> None:
    """Attempts and results say that another compiler made their artifacts."""
    book = []
    for row in where.ledger.read():
        if isinstance(row, (Attempt, Result)):
            tools = (Tool(name="ziglang", version="0.0.1", digest=digest),)
            row = dataclasses.replace(row, build=_build(row, toolchain=tools))
        book.append(row)
    landings.rewrite(where, book)
    anew(where)


def test_what_another_toolchain_made_is_listed_with_its_pins_and_counted(where: House) -> None:
    """The artifact of a longer ledger is not what its source gives: where the compiler is another one, that may be."""
    grown = history.grow(where, 9)
    with pytest.raises(ToolchainMoved, match="no tool that it names has moved"):
        audited(grown, deep=True)
    _with_compiler(grown, OTHER)
    said = audited(grown, deep=True)
    assert any(
        line.startswith("deep      record 8 was not rebuilt for ") and "ziglang 0.0.1 -> " in line for line in said
    )
    assert said[-1] == "deep      2 of 3 artifacts rebuilt from their archived sources"
    with pytest.raises(ToolchainMoved) as caught:
        audited(grown, deep=True, strict=True)
    assert caught.value.exit_code == 4


def test_a_long_ledger_is_audited_on_all_processors_with_the_same_result(where: House) -> None:
    """Sound where every record is; the first that is not is named, as if they were taken in order."""
    grown = history.grow(where, audit.SPAN * 2 + 6)
    assert "claims    every record follows from its archived plan, evidence and source" in audited(grown)
    book = [*grown.ledger.read()]
    for sequence in (audit.SPAN + 20, len(book) - 1):
        at = next(i for i in range(sequence, 0, -1) if isinstance(book[i - 1], Result))
        book[at - 1] = dataclasses.replace(book[at - 1], reasons=("because",))
        first = min(i for i, row in enumerate(book, start=1) if getattr(row, "reasons", ()) == ("because",))
        landings.rewrite(grown, book)
        scratch.git(grown.root, "branch", "-q", "-m", f"before-{at}")
        anew(grown)
        with pytest.raises(LedgerError, match=f"{first:06d}.json: what it says of its reasons does not follow"):
            audited(grown)


def test_every_error_of_an_audit_is_one_line(apart: House) -> None:
    """Where, what, what to do."""
    forged(apart, 5, title="x")
    with pytest.raises(LandingError) as caught:
        audited(apart)
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).endswith("; restore ledger/ from git")
