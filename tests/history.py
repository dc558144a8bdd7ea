"""A long ledger of real records: a landing of the adder told over and over, each time with a source of its own.

Every record follows from what is archived, so that an audit of it is green and has as much to do as one of landings.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from pipeline import build, canonical, derive, kit, protocol, registrar, sizes, timing, tree
from pipeline.claims import Artifact, Baseline, Digest
from pipeline.house import House
from pipeline.proof import CANDIDATE, Evidence, Plan, Sample
from pipeline.proof import Tree as Planned
from pipeline.records import Attempt, Promote, Record, Result
from pipeline.tree import SourceFile, Tree
from tests import landings, scratch


def grow(where: House, length: int) -> House:
    """The ledger of a house where block scale landed has at least this many records; all of it is committed."""
    book = list(where.ledger.read())
    landed = book[-3:]
    plan = derive.read_plan(where, landed[0])
    evidence = derive.read_evidence(where, landed[1])
    archive = landed[1].source.archive
    kept = tree.untar(where.baselines.fetch(archive.sha256), where.baselines.fetch)
    while len(book) < length:
        book += _told(where, book, landed, plan, evidence, kept)
    landings.rewrite(where, book)
    promotes = [record for record in book if isinstance(record, Promote)]
    where.baselines.restore(
        promotes[-1].target,
        artifact_name=promotes[-1].artifact.name,
        current=promotes[-1].artifact.sha256,
        previous=promotes[-2].artifact.sha256,
    )
    scratch.commit(where.root, f"{len(book)} records")
    return landings.at(where.root)


def _told(
    where: House, book: list[Record], landed: list[Record], plan: Plan, evidence: Evidence, kept: Tree
) -> tuple[Attempt, Result, Promote]:
    attempt, result, promote = landed
    assert isinstance(attempt, Attempt) and isinstance(result, Result) and isinstance(promote, Promote)
    number = len(book) + 1
    text = next(file for file in kept.files if file.path == "adder.c")
    said = SourceFile.of("adder.c", text.data + b"/* told again as record %d */\n" % number, text.mode)
    files = Tree(kept.folder, tuple(said if file is text else file for file in kept.files))
    artifact = where.baselines.fetch(result.artifact.sha256) + b"%d" % number
    here = protocol.standing(book, plan.target)
    told = _plan(where, plan, files, canonical.sha256(artifact), number, here)
    seen = _evidence(evidence, told)
    decision = protocol.judge(told, seen)
    objects = [kit.squeeze(told.to_bytes()), kit.squeeze(seen.to_bytes()), tree.tar(files), artifact]
    objects += [timing.samples_bytes(seen.samples)]
    paths = [_put(where, data) for data in objects]
    sources, tools = registrar.source_digests(where.subject, where.subject.target(), files)
    source = dataclasses.replace(
        attempt.source,
        sources=Digest(sha256=sources),
        tools=Digest(sha256=tools),
        git_tree=tree.git_name(files, like=attempt.source.git_tree or ""),
    )
    before = where.baselines.path_of(told.artifacts["baseline"])
    common = {
        "sequence": number,
        "artifact": Artifact(name=told.artifact, sha256=canonical.sha256(artifact)),
        "revision": told.revision,
    }
    asked = dataclasses.replace(
        attempt, **common, source=source, baseline=told.baseline, plan=Digest(sha256=paths[0].name)
    )
    answer = dataclasses.replace(
        result,
        **common | {"sequence": number + 1},
        attempt=number,
        source=dataclasses.replace(source, archive=Digest(sha256=paths[2].name)),
        baseline=told.baseline,
        plan=asked.plan,
        evidence=Digest(sha256=paths[1].name),
        **landings.said(decision),
        sizes=sizes.told(sizes.changes(sizes.measure(before), sizes.measure(paths[3])), rules=told.rules),
    )
    return asked, answer, dataclasses.replace(promote, **common | {"sequence": number + 2}, result=number + 1)


def _plan(where: House, plan: Plan, files: Tree, artifact: str, number: int, here: Promote | None) -> Plan:
    assert here is not None
    trees = {CANDIDATE: Planned(files=tuple((f.path, f.sha256, f.mode) for f in files.files))}
    for mutant in where.subject.mutants:
        if mutant.name in plan.trees:
            changed = next(f for f in build.mutate(files.files, mutant) if f.path == mutant.file)
            row = (changed.path, changed.sha256, changed.mode)
            trees[mutant.name] = Planned(files=(row,), over=CANDIDATE)
    return dataclasses.replace(
        plan,
        sequence=number,
        revision=number // 3 - 1,
        baseline=Baseline(sequence=here.sequence, sha256=here.artifact.sha256),
        trees=trees,
        artifacts={**plan.artifacts, CANDIDATE: artifact, "baseline": here.artifact.sha256},
        seed=number,
    )


def _evidence(evidence: Evidence, plan: Plan) -> Evidence:
    """The same outputs and times, of this plan's own inputs and in the order of its own coin."""
    return dataclasses.replace(
        evidence,
        plan=canonical.sha256(plan.to_bytes()),
        jobs=landings.fed(plan, evidence),
        samples=_samples(evidence, plan),
    )


def _samples(evidence: Evidence, plan: Plan) -> tuple[Sample, ...]:
    """The baseline's times for every role, so that no telling is slower: only the candidate's last digits differ."""
    known = {(s.bench, s.pair): s for s in evidence.samples if s.role == "baseline"}
    made = []
    for bench in plan.benches:
        for pair in range(bench.pairs):
            for order, role in enumerate(timing.turns(plan.seed, bench.name, pair)):
                row = known[bench.name, pair]
                more = (pair % 2 * 2 - 1) * (role != "baseline")
                medians = {case: value + more for case, value in row.medians_ps.items()}
                made.append(dataclasses.replace(row, role=role, order=order, medians_ps=medians))
    return tuple(made)


def _put(where: House, data: bytes) -> Path:
    """An object in the archive, without the care that a permanent one is owed."""
    path = where.baselines.path_of(canonical.sha256(data))
    path.write_bytes(data)
    return path
