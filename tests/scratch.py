"""Scratch git repositories that hold the adder at a block of its short history."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ADDER = Path(__file__).parent / "subjects" / "adder"
BLOCKS = ("sum", "scale", "clip")
ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
}


def room() -> Path:
    """A folder that goes with this process, for what several tests copy."""
    folder = tempfile.mkdtemp(prefix="scratch-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def git(root: Path, *argv: str) -> str:
    """What a git command prints in a repository, with no setting of this machine."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | ENVIRONMENT
    done = subprocess.run(["git", *argv], cwd=root, env=environ, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def repository(root: Path, block: str = "clip") -> Path:
    """A repository at `root` with one commit, the adder as it was at a block; returns the adder's folder."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "A. Tester")
    git(root, "config", "user.email", "tester@example.org")
    write(root / "adder", block)
    commit(root, f"adder: block {block}")
    return root / "adder"


def write(folder: Path, block: str = "clip") -> None:
    """The adder's files as they were at a block: adder.c ends where the next block's part begins."""
    folder.mkdir(exist_ok=True)
    for path in ADDER.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    later = BLOCKS[BLOCKS.index(block) + 1 :]
    if later:
        text = (ADDER / "adder.c").read_text()
        (folder / "adder.c").write_text(text[: text.index(f"\n/* Block {later[0]}:")])


def commit(root: Path, message: str) -> str:
    """Everything is committed; returns the commit."""
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", message)
    return git(root, "rev-parse", "HEAD")
