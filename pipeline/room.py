"""One plan's place on the machine that proves it: trees, artifacts, and one file for each thing that was done.

Nothing here is permanent. A room that a killed proof left is gone on with.
"""

from __future__ import annotations

import compileall
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final, TypeVar

from pipeline import canonical, durable
from pipeline.claims import Input
from pipeline.errors import IntegrityError, Waiting
from pipeline.kit import Kit
from pipeline.proof import Plan

T = TypeVar("T")
ROLE_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class Room:
    """`deadline` is by the monotonic clock: what is not begun by then waits for the next call."""

    kit: Kit
    plan: Plan
    folder: Path
    deadline: float | None

    def tree(self, name: str) -> Path:
        """Where commands run that use this tree: the parent of its copy."""
        return self.folder / "trees" / name

    def run(self, name: str) -> Path:
        """An empty folder for one run."""
        made = self.folder / "runs" / name
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        return made

    def placeholders(self, argv: Sequence[str], *, of: str, tree: str) -> tuple[dict[str, str], tuple[Input, ...]]:
        """Paths of the placeholders that a command uses, and the table that gives each one's digest."""
        where = {"python": sys.executable}
        table = self.plan.reads(argv, of=of, tree=tree)
        for row in table[1:]:
            name = row.name.strip("{}")
            if name.startswith("input:"):
                where[name] = str(self._place(row.digest, name, self.plan.inputs[name.removeprefix("input:")][0]))
            elif name.startswith("tools:"):
                where[name] = str(self.tree(name))
            else:
                role = of if name in ("candidate", "artifact") else name
                where[name] = str(self._place(row.digest, role, self.plan.artifact))
        return where, table

    def _place(self, digest: str, role: str, name: str) -> Path:
        """An object as a file of its own, named as its command expects it.

        Paths of all roles are of one length: a longer argument moves a process's stack, and with it what is timed.
        """
        path = self.folder / "files" / canonical.sha256(role.encode())[:ROLE_DIGITS] / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            durable.replace(path, self.kit.objects[digest])
        return path

    def spread(self, name: str) -> None:
        """Writes a copy of the subject; a half-written one of a killed run is written again.

        What Python would compile in every process is compiled once. The bytecode names the digest of its text, by
        which Python knows that a mutant's text is another.
        """
        parent, tree = self.tree(name), self.plan.trees[name]
        done = self.folder / "done" / f"tree-{name}"
        if done.exists():
            return
        shutil.rmtree(parent, ignore_errors=True)
        if tree.over:
            self.spread(tree.over)
            shutil.copytree(self.tree(tree.over), parent)
        for path, digest, mode in tree.files:
            file = parent / self.plan.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.kit.objects[digest])
            file.chmod(mode)
        if not tree.over:
            compileall.compile_dir(parent, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        done.parent.mkdir(parents=True, exist_ok=True)
        durable.replace(done, b"")

    def once(self, name: str, make: Callable[[], T], kind: type[T]) -> T:
        """What `make` gave, now or in an earlier run that was stopped."""
        path = self.folder / "done" / f"{name}.json"
        try:
            return canonical.typed(kind, canonical.loads(durable.read(path)))
        except FileNotFoundError:
            pass
        except ValueError as error:
            raise IntegrityError(
                path, f"not what a proof left: {error}", "remove the work folder and prove again"
            ) from None
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise Waiting(
                "prove", "the time that --seconds gave is over; what was done is kept", "run the same command again"
            )
        made = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.replace(path, canonical.pack(made))
        return made
