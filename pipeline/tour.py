"""The recorded landings replayed in a scratch repository: each with its own checks, short, untimed and without mutants.

Then a mutant is committed as an edit, and all checks together must refuse it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pipeline import build, land, manifest
from pipeline.errors import IntegrityError, UsageError
from pipeline.house import House, Say
from pipeline.records import Promote
from pipeline.source import Repository
from pipeline.stage import Ask
from pipeline.subject import Mutant
from pipeline.tree import SourceFile, Tree, copy_out, untar

DONE, FAILED = 0, 1


def tour(house: House, target_name: str | None, say: Say) -> tuple[int, str]:
    """Exit code and last line. The house's own ledger is read and nothing of it is touched. Raises LandingError."""
    target = house.subject.target(target_name)
    book = house.ledger.read()
    promotes = [record for record in book if isinstance(record, Promote) and record.target == target.name]
    if not promotes:
        raise UsageError(target.name, "nothing has landed on it yet", "land a block first: nox -s land-block")
    with tempfile.TemporaryDirectory(prefix="tour-") as scratch:
        top = Path(scratch)
        repository = Repository.create(top)
        replayed = House(folder=top / house.folder.name, root=top)
        kept = Tree("", ())
        for promote in promotes:
            result = book[promote.result - 1]
            kept = untar(house.baselines.fetch(result.source.archive.sha256), house.baselines.fetch)  # type: ignore[attr-defined]
            _lay(kept, top)
            repository.commit_all(f"{promote.block}: as record {promote.sequence} landed it")
            say(f"\n== {promote.block}, as record {promote.sequence} landed it ==")
            replayed = House(folder=top / kept.folder, root=top)
            ended = land.land(replayed, Ask(block=promote.block, target=target.name, quick=True, own=True), say)
            say(ended.last)
            repository.commit_all(f"{promote.block}: landed")
            if ended.code or ended.record is None or ended.record.artifact.sha256 != promote.artifact.sha256:
                raise IntegrityError(
                    f"record {promote.sequence}", "does not land again as it did", "run `ledger-audit -- --deep`"
                )
        mutant = _fault(replayed, target.name, promotes[-1].block)
        say(f"\n== {mutant.name}: a fault planted in {mutant.file}, and committed ==")
        _lay(Tree(kept.folder, _planted(kept, mutant)), top)
        repository.commit_all(f"plant {mutant.name}")
        refused = land.land(replayed, Ask(block=promotes[-1].block, target=target.name, quick=True), say)
        say(refused.last)
    if refused.code != land.CODES["refused"]:
        return FAILED, f"the planted fault {mutant.name} was not refused"
    return DONE, f"TOUR: {len(promotes)} landings replayed to their digests, and {mutant.name} refused and on record"


def _lay(kept: Tree, top: Path) -> None:
    """The subject's folder holds this tree and nothing else."""
    shutil.rmtree(top / kept.folder, ignore_errors=True)
    copy_out(kept, top)


def _fault(house: House, target: str, block: str) -> Mutant:
    subject = manifest.load(house.folder)
    mutants = [m for m in subject.mutants_at(target, block) if not m.neutral]
    if not mutants:
        raise UsageError(subject.where, "has no mutant to plant", "add one")
    return mutants[0]


def _planted(kept: Tree, mutant: Mutant) -> tuple[SourceFile, ...]:
    return build.mutate(kept.files, mutant)
