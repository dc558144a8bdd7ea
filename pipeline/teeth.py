"""Every check against every mutant, in teeth form: which faults each sees, and which only it sees. Writes no record.

Nothing is timed and so nothing is drawn: the same tree gives the same plan, and a run that was interrupted goes on.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from typing import Final

from pipeline import claims, durable, ledger, protocol, registrar, report, stage, workshop
from pipeline.cargo import Cargo
from pipeline.errors import UsageError
from pipeline.house import House, Say
from pipeline.proof import CANDIDATE, Job
from pipeline.subject import Mutant, suggest

SHARP, BLUNT = 0, 1
WHOLE: Final = 1  # the rules that leave nothing out: a matrix shows green neutral runs, too


def teeth(house: House, target_name: str | None, names: Sequence[str], say: Say) -> tuple[int, str]:
    """Exit code and last line; of all mutants, or of those that are named. Raises LandingError."""
    with ledger.lock(house.root, "teeth"):
        target = house.subject.target(target_name)
        book = house.ledger.read()
        here = protocol.standing(book, target.name)
        block = house.subject.block(here.block) if here else house.subject.blocks_of(target.name)[0]
        taken = house.repository.collect(house.folder, house.subject, target=target)
        room = house.workspace("teeth")
        shutil.rmtree(room, ignore_errors=True)
        built = workshop.build_once(house, target, taken, room / "candidate")
        cargo = Cargo()
        cargo.add_tree(CANDIDATE, taken.files)
        cargo.add_artifact(CANDIDATE, durable.read(built.path))
        if here is not None:
            cargo.add_artifact("baseline", house.baselines.fetch(here.artifact.sha256))
        checks = protocol.applicable(house.subject, target, block, baseline=here is not None)
        mutants = _chosen(house.subject.mutants_at(target.name, block.name), names)
        made = workshop.build_mutants(house, target, taken, built, mutants, room / "mutants")
        planted = cargo.add_mutants(taken, ((mutant, *rest) for mutant, rest in zip(mutants, made, strict=True)))
        cargo.add_earlier(house, target, book, [argv for check in checks for argv in check.commands(teeth=False)])
        shutil.rmtree(room, ignore_errors=True)
        trees = [CANDIDATE, *(mutant.name for mutant in planted if mutant.set_up is None)]
        jobs = tuple(
            Job(id=check.id if of == CANDIDATE else f"{check.id}@{of}", check=check.id, of=of, tree=of, teeth=True)
            for of in trees
            for check in checks
        )
        plan = stage.blank(house, target, block, cargo, taken, checks)
        plan = dataclasses.replace(plan, mutants=planted, jobs=jobs, rules=WHOLE, seed=0)
        decision = registrar.resumed(house, plan, cargo.objects, "matrix")
    decision.require_obtained()
    say(report.matrix(decision.checks, [mutant.name for mutant in mutants]))
    faults = [f"check {c.id} is red without a fault: {c.where}" for c in decision.checks if c.verdict != "green"]
    faults += [fault for mutant in mutants for fault in _faults(mutant, decision.checks)]
    for line in (*(() if names else _never_alone(decision.checks, mutants)), *faults):
        say(f"  {line}")
    deadly = sum(not mutant.neutral for mutant in mutants)
    last = f"{deadly} mutants, {len(mutants) - deadly} neutral, {len(checks)} checks on {target.name} at {block.name}"
    return (BLUNT, f"BLUNT: {last}, {len(faults)} faults") if faults else (SHARP, f"SHARP: {last}")


def _chosen(mutants: Sequence[Mutant], names: Sequence[str]) -> Sequence[Mutant]:
    """The mutants of these names, all without any. Raises UsageError that names the nearest."""
    known = [mutant.name for mutant in mutants]
    for name in names:
        if name not in known:
            raise UsageError(f"mutant {name}", "is none that this block has on this target", suggest(name, known))
    return [mutant for mutant in mutants if not names or mutant.name in names]


def _faults(mutant: Mutant, checks: Sequence[claims.Check]) -> list[str]:
    """Where a mutant did not meet what the manifest says of it."""
    seen = {check.id: proof for check in checks for proof in check.counterproofs if proof.mutant == mutant.name}
    if mutant.neutral:
        return [
            f"{mutant.name} is neutral, and red under {c}: {p.where}" for c, p in seen.items() if p.outcome != "green"
        ]
    found = [
        f"{mutant.name} is not caught by {name}"
        + (f": {seen[name].where}" if name in seen and seen[name].where else "")
        for name in mutant.caught_by
        if any(check.id == name for check in checks) and (name not in seen or seen[name].outcome != "caught")
    ]
    others = [name for name, proof in seen.items() if proof.outcome == "caught" and name not in mutant.caught_by]
    return found + (
        [f"{mutant.name} is caught by {', '.join(others)} too, and was said to be caught alone"]
        if mutant.only and others
        else []
    )


def _never_alone(checks: Sequence[claims.Check], mutants: Sequence[Mutant]) -> list[str]:
    """Checks that are never the only one to catch a mutant: what they add is not shown by this matrix."""
    caught = {
        m.name: [c.id for c in checks for p in c.counterproofs if p.mutant == m.name and p.outcome == "caught"]
        for m in mutants
    }
    alone = {names[0] for names in caught.values() if len(names) == 1}
    return [f"check {check.id} never catches alone" for check in checks if check.id not in alone]
