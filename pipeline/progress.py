"""Says what a long step is doing: a bar where somebody watches, plain lines elsewhere. Standard error only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

Step: TypeAlias = Callable[[str], None]  # called once a finished item, with its name
QUIET_S: Final = 2.0  # a step shorter than this says nothing
EVERY_S: Final = 10.0  # where nobody watches, a line at least this far from the one before


@contextmanager
def track(title: str, total: int) -> Iterator[Step]:
    """A function to call after each of `total` items of a step."""
    if not sys.stderr.isatty():
        with _lines(title, total) as step:
            yield step
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:  # a machine that only proves kits need not have rich
        with _lines(title, total) as step:
            yield step
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        with _lines(title, total) as step:
            yield step
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda item: bar.update(task, advance=1, description=f"{title}: {item}")


@contextmanager
def _lines(title: str, total: int) -> Iterator[Step]:
    start = last = time.monotonic()
    done = 0

    def step(item: str) -> None:
        nonlocal done, last
        done += 1
        if time.monotonic() - last >= EVERY_S:
            last = time.monotonic()
            print(f"  {title}: {done} of {total}, {item}", file=sys.stderr, flush=True)

    yield step
    seconds = time.monotonic() - start
    if seconds >= QUIET_S:
        print(f"  {title}: {done} of {total} in {seconds:.1f} s", file=sys.stderr, flush=True)
