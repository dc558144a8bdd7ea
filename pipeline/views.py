"""What `current` and `previous` of every target must hold, by the ledger; and how they are made again."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline import ledger
from pipeline.baselines import CURRENT, PREVIOUS
from pipeline.claims import Artifact
from pipeline.errors import BaselineMismatch
from pipeline.house import House, Say
from pipeline.records import Promote, Record


def require(house: House, book: Sequence[Record]) -> None:
    """Raises BaselineMismatch unless `current` and `previous` of every target are what the ledger promoted."""
    for target in sorted({record.target for record in book}):
        for view in (CURRENT, PREVIOUS):
            require_one(house, book, target, view)


def require_one(house: House, book: Sequence[Record], target: str, view: str) -> None:
    """The same of one view of one target."""
    promotes = [r.artifact for r in reversed(book) if isinstance(r, Promote) and r.target == target]
    promote = promotes[:1] if view == CURRENT else promotes[1:2]
    found = house.baselines.look(target, view=view)
    wanted = (promote[0].name, promote[0].sha256) if promote else None
    if found != wanted:
        path = house.baselines.view(view, target) / (wanted or found or ("", ""))[0]
        is_now, was = (pair[1] if pair else "missing" for pair in (found, wanted))
        todo = "find out who changed it, then `python -m pipeline restore`"
        raise BaselineMismatch(path, f"is {is_now}, promoted was {was if wanted else 'nothing'}", todo)


def show(house: House, book: Sequence[Record], target: str) -> Artifact:
    """Both views of a target are made again from its promotes, of which there is one; returns the current artifact."""
    newest, *older = [r.artifact for r in reversed(book) if isinstance(r, Promote) and r.target == target][:2]
    house.baselines.restore(
        target,
        artifact_name=newest.name,
        current=newest.sha256,
        previous=older[0].sha256 if older else None,
        previous_name=older[0].name if older else None,
    )
    return newest


def restore(house: House, say: Say) -> str:
    """Both views of every target are made again from the archive; returns the last line. Raises ArchiveError, Busy."""
    with ledger.lock(house.root, "restore"):
        book = house.book()
        for target in sorted({record.target for record in book if isinstance(record, Promote)}):
            newest = show(house, book, target)
            say(f"restore   {target}: {newest.name} {newest.sha256}")
        require(house, book)
        return "SOUND: the views are what the newest promotes name"
