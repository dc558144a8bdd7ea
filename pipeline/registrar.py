"""The records of a walk: attempt, result, promote, void, made and appended. What a record names is archived first."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline import canonical, durable, kit, ledger, machine, protocol, prove, sizes, source, timing, tree, views
from pipeline.baselines import CURRENT
from pipeline.claims import Artifact, Digest, Sizes
from pipeline.errors import EvidenceError, IntegrityError, UsageError, Waiting
from pipeline.house import House, Say, command_line, environment
from pipeline.kit import Kit
from pipeline.proof import CANDIDATE, Evidence, Plan
from pipeline.records import Attempt, Promote, Record, Result, Void
from pipeline.stage import Staged
from pipeline.subject import Subject, Target
from pipeline.tree import SourceFile
from pipeline.verdict import Decision


def plan_digest(plan: Plan) -> str:
    """The digest of the plan as it is archived, by which records name it."""
    return canonical.sha256(kit.squeeze(plan.to_bytes()))


def evidence_key(plan: Plan) -> str:
    """The digest of the plan as a kit carries it, by which evidence names it."""
    return canonical.sha256(plan.to_bytes())


def evidence_of(room: Path) -> Path:
    """Where the evidence of an attempt is, or will be, in its workspace."""
    return room / "evidence.json"


def is_whole(room: Path) -> bool:
    """True if a workspace holds an attempt's kit, and its evidence or the place of what its proof has seen so far."""
    seen = evidence_of(room).exists() or prove.work_of(evidence_of(room)).is_dir()
    return seen and all((room / "kit" / name).exists() for name in (kit.HEAD, kit.OBJECTS))


def require_committed(house: House, book: Sequence[Record]) -> None:
    """Raises UsageError unless every record, view and object so far is committed: one landing at a time.

    Asks nothing for what a crash left: a writer's temporary file, an object that no record names. Raises
    BaselineMismatch first: a build may have written where it must not.
    """
    views.require(house, book)
    named = {digest for record in book for digest in named_objects(record)}
    for path in map(Path, house.repository.uncommitted([house.ledger.folder, house.baselines.folder])):
        left = path.parent.name == house.baselines.objects_folder.name and path.name not in named
        if not left and not any(part.startswith(durable.TEMPORARY) for part in path.parts):
            raise UsageError(path, "of an earlier landing is not committed", "git add ledger baselines, and commit")


def room_of(house: House, attempt: Attempt) -> Path:
    """The workspace of an attempt."""
    return house.workspace(f"{attempt.sequence:06d}")


def begin(house: House, staged: Staged, book: Sequence[Record], say: Say) -> Attempt:
    """The kit is in its workspace, the plan is archived, and the attempt is on record: nothing was measured before."""
    plan = staged.plan
    room = house.workspace(f"{plan.sequence:06d}")
    shutil.rmtree(room, ignore_errors=True)
    kit.pack(room / "kit", [plan], staged.objects)
    prove.work_of(evidence_of(room)).mkdir()
    house.baselines.archive(kit.squeeze(plan.to_bytes()))
    made = Attempt(
        sequence=plan.sequence,
        previous=house.ledger.head()[1],
        artifact=Artifact(name=plan.artifact, sha256=plan.artifacts[CANDIDATE]),
        target=plan.target,
        block=plan.block,
        revision=plan.revision,
        title=staged.block.title,
        baseline=plan.baseline,
        source=staged.source_row(),
        build=staged.build,
        builds=staged.builds,
        plan=Digest(sha256=plan_digest(plan)),
        limits=staged.block.limits,
        rules=plan.rules,
        pipeline=Digest(sha256=plan.pipeline),
        machine=machine.describe(),
        environment=environment(),
        argv=command_line(),
        time={"attemptedOn": machine.now()},
    )
    house.ledger.append(made)
    pairs = sum(bench.pairs for bench in plan.benches)
    say(f"attempt   record {made.sequence}: {len(plan.jobs)} runs, {pairs} pairs, seed {plan.seed}")
    return made


def record(
    house: House, attempt: Attempt, opened: Kit, plan: Plan, evidence: Evidence, decision: Decision, measured: Sizes
) -> Result:
    """The result is on record; what it names was archived first. A refused candidate is recorded by digest alone."""
    files = tuple(
        SourceFile(path, digest, mode, opened.objects[digest]) for path, (digest, mode) in plan.tree(CANDIDATE).items()
    )
    kept = tree.Tree(plan.folder, files)
    archived, large = tree.tar(kept), tree.large(kept)
    evidence_bytes = kit.squeeze(evidence.to_bytes())
    keep = [evidence_bytes, archived, *(file.data for file in large)]
    if decision.timing:
        keep.append(timing.samples_bytes(evidence.samples))
    if decision.verdict == "landed":
        keep.append(opened.objects[plan.artifacts[CANDIDATE]])
    for data in keep:
        house.baselines.archive(data)
    made = Result(
        artifact=attempt.artifact,
        target=attempt.target,
        block=attempt.block,
        revision=attempt.revision,
        title=attempt.title,
        attempt=attempt.sequence,
        verdict=decision.verdict,
        reasons=decision.reasons,
        baseline=attempt.baseline,
        source=dataclasses.replace(
            attempt.source,
            archive=Digest(sha256=canonical.sha256(archived)),
            large=tuple(Digest(sha256=file.sha256) for file in large),
        ),
        build=attempt.build,
        builds=attempt.builds,
        plan=attempt.plan,
        evidence=Digest(sha256=canonical.sha256(evidence_bytes)),
        checks=decision.checks,
        sizes=sizes.told(measured, rules=plan.rules),
        timing=decision.timing,
        figures=decision.figures,
        limits=attempt.limits,
        rules=plan.rules,
        pipeline=attempt.pipeline,
        machine=evidence.machine,
        environment=attempt.environment,
        inputs=decision.inputs,
        argv=command_line(),
        time=evidence.time,
    )
    appended = house.ledger.append(made)
    assert isinstance(appended, Result)
    return appended


def promote(house: House, result: Result, say: Say) -> None:
    """The promote record is written, then the views follow it. Raises BaselineMismatch if `current` has changed."""
    views.require_one(house, house.ledger.read(), result.target, CURRENT)
    made = Promote(
        artifact=result.artifact,
        target=result.target,
        block=result.block,
        revision=result.revision,
        title=result.title,
        result=result.sequence,
        argv=command_line(),
        time={"promotedOn": machine.now()},
    )
    sequence = house.ledger.append(made).sequence
    house.baselines.promote(result.target, artifact_name=result.artifact.name, digest=result.artifact.sha256)
    say(f"promote   record {sequence}: {result.artifact.name} {result.artifact.sha256} is current on {result.target}")


def void(house: House, attempt: Record, why: str, say: Say) -> Void:
    """Closes an attempt that will get no result. It stays on record and counts; its workspace is given up."""
    made = Void(
        artifact=attempt.artifact,
        target=attempt.target,
        block=attempt.block,
        revision=attempt.revision,
        voids=attempt.sequence,
        who=house.repository.author(),
        why=why,
        argv=command_line(),
        time={"voidedOn": machine.now()},
    )
    appended = house.ledger.append(made)
    shutil.rmtree(house.workspace(f"{attempt.sequence:06d}"), ignore_errors=True)
    say(f"void      record {appended.sequence}: {attempt.sequence} is void: {why}")
    assert isinstance(appended, Void)
    return appended


def void_by_hand(house: House, sequence: int, why: str, say: Say) -> str:
    """An attempt is closed, or a record corrected, by a void that names it. Raises UsageError."""
    if not why.strip():
        raise UsageError("--why", "is empty", "say why it is void")
    with ledger.lock(house.root, "void"):
        book = house.book()
        if not 0 < sequence <= len(book) or isinstance(book[sequence - 1], Void):
            raise UsageError(
                f"void {sequence}", f"there is no such attempt, result or promote among {len(book)}", "see `log`"
            )
        closed = next((r for r in book if getattr(r, "attempt", getattr(r, "voids", None)) == sequence), None)
        if closed is not None:
            raise UsageError(
                f"void {sequence}", f"record {closed.sequence} has closed it", "void that one, if it is wrong"
            )
        made = void(house, book[sequence - 1], why, say)
        return f"VOID: record {sequence}, by record {made.sequence}"


def named_objects(record: Record) -> set[str]:
    """The digests of the archive that a record names."""
    if isinstance(record, Promote):
        return {record.artifact.sha256}
    if isinstance(record, Attempt):
        return {record.plan.sha256}
    if isinstance(record, Result):
        archive = record.source.archive
        return {
            record.plan.sha256,
            record.evidence.sha256,
            *(t.samples.sha256 for t in record.timing),
            *([archive.sha256] if archive else []),
            *(file.sha256 for file in record.source.large),
        }
    return set()


def measured(plan: Plan, objects: Mapping[str, bytes], room: Path) -> Sizes:
    """[before, after] of artifact, sections, kernels and host files of a plan's baseline and candidate."""
    room.mkdir(parents=True, exist_ok=True)
    made = {}
    for role in ("baseline", CANDIDATE):
        if role in plan.artifacts:
            path = room / plan.artifacts[role]
            path.write_bytes(objects[plan.artifacts[role]])
            made[role] = sizes.measure(path)
    return sizes.changes(made.get("baseline"), made[CANDIDATE])


def rehearsed(house: House, plan: Plan, objects: Mapping[str, bytes]) -> tuple[Decision, Sizes]:
    """A plan proved and judged without a record, and its sizes; nothing of it is left. Raises EvidenceError."""
    _require_hardware(plan)
    room = house.workspace("rehearsal")
    shutil.rmtree(room, ignore_errors=True)
    try:
        kit.pack(room / "kit", [plan], objects)
        (evidence,) = prove.prove(room / "kit", room / "evidence.json")
        return judged(plan, evidence), measured(plan, objects, room / "sizes")
    finally:
        shutil.rmtree(room, ignore_errors=True)


def resumed(house: House, plan: Plan, objects: Mapping[str, bytes], name: str) -> Decision:
    """The same of a plan in which nothing is drawn: one that was stopped goes on, here and as long as nothing changed.

    Raises LandingError; only evidence that is not to be believed takes what was done with it.
    """
    _require_hardware(plan)
    room = house.workspace(name)
    begun, evidence = room / "begun", room / "evidence.json"
    mark = canonical.dumps([evidence_key(plan), environment(), machine.describe(plan.needs)])
    if not begun.exists() or durable.read(begun) != mark:
        shutil.rmtree(room, ignore_errors=True)
        kit.pack(room / "kit", [plan], objects)
        durable.replace(begun, mark)
    try:
        if not evidence.exists():
            prove.prove(room / "kit", evidence)
        made = judged(plan, kit.read_evidence(evidence, durable.read(evidence))[0])
    except IntegrityError:
        shutil.rmtree(room, ignore_errors=True)
        raise
    shutil.rmtree(room, ignore_errors=True)
    return made


def _require_hardware(plan: Plan) -> None:
    """Raises Waiting where a plan needs what this machine has not: nothing that it ran would be evidence."""
    if plan.needs is not None and plan.needs not in machine.describe(plan.needs):
        todo = f"commit, and land --target {plan.target} --kit DIR, to be proved where there is one"
        raise Waiting(plan.target, f"needs a {plan.needs}, which is not here", todo)


def judged(plan: Plan, evidence: Evidence) -> Decision:
    """The verdict. Raises EvidenceError for evidence that does not answer the plan or contradicts itself."""
    try:
        return protocol.judge(plan, evidence)
    except ValueError as error:
        raise EvidenceError("evidence", str(error), "prove the kit again, and carry back what it writes") from None


def source_digests(subject: Subject, target: Target, kept: tree.Tree) -> tuple[str, str]:
    """Digests of the sources and of the tools of a tree, by its own manifest."""
    made = (
        source.digest(kept.files, globs, where=subject.where) for globs in (subject.sources_of(target), subject.tools)
    )
    sources, tools = made
    return sources, tools
