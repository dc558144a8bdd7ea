"""What a subject is made of: its files, their digests, the commit they are at. The only user of git.

Bytes are taken as they lie on disk or in git's objects: no filter, line-end rule, index flag or replacement ref is
asked, so that what is hashed, built and archived is one thing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pipeline.durable import READ_MAX
from pipeline.errors import HistoryError, MachineError, UsageError
from pipeline.subject import Subject, Target, shown
from pipeline.tree import FILE_BYTES_MAX, FILES_MAX, Source, SourceFile, blob_name, changed, digest, plain_reader

__all__ = ["Repository", "Source", "digest", "top_of"]

COMMITS_SHOWN_MAX: Final = 100
_LINK, _MODULE = "120000", "160000"  # modes of git's tree entries that are no files
_COMMIT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def top_of(inside: Path) -> Path:
    """The top of the repository around a folder. Raises UsageError outside of one."""
    start = inside.resolve()
    top = next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), None)
    if top is None:
        raise UsageError(shown(inside.name), "is not in a git repository", "git init there, and commit the sources")
    return top


class Repository:
    """The git repository around a folder. Raises MachineError where git is missing, UsageError outside of one."""

    def __init__(self, inside: Path) -> None:
        try:
            import git
        except ImportError as error:
            raise MachineError("git", f"cannot be used ({str(error).strip().splitlines()[0]})", "install git") from None
        self.top = top = top_of(inside)
        self._git: Any = git.Git(str(top))
        self._error: type[Exception] = git.GitError
        self._git.update_environment(
            GIT_DIR=str(top / ".git"),  # a hook's own GIT_DIR would lead elsewhere
            GIT_WORK_TREE=str(top),
            GIT_LITERAL_PATHSPECS="1",
            GIT_OPTIONAL_LOCKS="0",
            GIT_NO_REPLACE_OBJECTS="1",
            GIT_GRAFT_FILE=os.devnull,
            GIT_CONFIG_COUNT="1",
            GIT_CONFIG_KEY_0="core.fsmonitor",
            GIT_CONFIG_VALUE_0="false",
        )
        if "GIT_INDEX_FILE" in os.environ:
            index = Path(self._text("rev-parse", "--absolute-git-dir")) / "index"
            self._git.update_environment(GIT_INDEX_FILE=str(index))

    @classmethod
    def create(cls, folder: Path) -> Repository:
        """A new repository at an existing folder, with an author of its own: for a replay, never for a subject."""
        import git

        made = git.Git(str(folder))
        made.update_environment(GIT_DIR=str(folder / ".git"), GIT_WORK_TREE=str(folder))
        made.init("--quiet", ".")
        for name, value in (("user.name", "replay"), ("user.email", "replay@localhost"), ("commit.gpgsign", "false")):
            made.config(name, value)
        return cls(folder)

    def commit_all(self, message: str) -> None:
        """Everything in the working tree is committed; nothing happens if it is already."""
        self._text("add", "--all", "--", ".")
        if self._text("status", "--porcelain"):
            self._text("commit", "--quiet", "--no-verify", "-m", message)

    def collect(self, folder: Path, subject: Subject, *, at: str | None = None, target: Target | None = None) -> Source:
        """The subject's files in the working tree, or at a commit; digests over the target's globs.

        Raises UsageError for a link or a submodule among them, ManifestError for a glob that matches none.
        """
        inside = self._inside(folder)
        head = self.head()
        commit = head if at is None else self.resolve(at)
        committed = self._entries(commit, inside) if commit else {}
        if at is None:
            read = plain_reader()
            files = tuple(self._work_file(inside, path, read) for path in self._work_paths(inside))
            dirty = changed(files, committed)
        else:
            files = tuple(SourceFile.of(p, self._blob(name), mode) for p, (mode, name) in sorted(committed.items()))
            dirty = ()
        if not files:
            raise UsageError(subject.folder, "holds no file that git knows", "commit the sources, or correct --subject")
        at_tree = f"{commit}:{inside}" if inside else f"{commit}^{{tree}}"
        return Source(
            folder=subject.folder,
            files=files,
            commit=None if dirty else commit,
            git_tree=None if dirty else self._text("rev-parse", "--verify", at_tree),
            dirty=dirty,
            sources=digest(files, subject.sources_of(target or subject.target()), where=subject.where),
            tools=digest(files, subject.tools, where=subject.where),
        )

    def head(self) -> str | None:
        """The commit of HEAD, or None before the first."""
        return self._commit("HEAD")

    def resolve(self, revision: str) -> str:
        """The full name of a commit. Raises UsageError if there is none of that name."""
        found = self._commit(revision)
        if found is None:
            raise UsageError(shown(revision), "is no commit of this repository", "correct it, or fetch it")
        return found

    def is_shallow(self) -> bool:
        """True if the history was cut when it was cloned."""
        return self._text("rev-parse", "--is-shallow-repository") == "true"

    def author(self) -> str:
        """The git author's name. Raises UsageError if none is set."""
        name = os.environ.get("GIT_AUTHOR_NAME", "").strip()
        if not name:
            with suppress(MachineError):
                name = self._text("config", "--get", "user.name")
        if not name:
            raise UsageError("git", "has no author name", 'git config user.name "YOUR NAME"')
        return name

    def commits_between(self, old: str | None, new: str, folder: Path) -> tuple[str, ...]:
        """One line for each commit that `new` has and `old` has not and that touches the folder, newest first.

        A commit that this history lost is said in a line of its own: it is no error.
        """
        lost = [rev for rev in (old, new) if rev is not None and self._commit(rev) is None]
        if lost:
            return tuple(f"{rev[:12]} is not in this history" for rev in lost)
        span = [f"{old}..{new}"] if old else [new]
        argv = ("log", "--no-decorate", "--no-show-signature", "--format=%h %s", f"-{COMMITS_SHOWN_MAX + 1}")
        lines = self._text(*argv, *span, "--", self._inside(folder) or ".").splitlines()
        more = ("… and older ones",) if len(lines) > COMMITS_SHOWN_MAX else ()
        return (*lines[:COMMITS_SHOWN_MAX], *more)

    def uncommitted(self, paths: Iterable[Path]) -> tuple[str, ...]:
        """The files under some files or folders that are not in HEAD as they are, ignored ones too."""
        inside = [self._inside(path) or "." for path in paths]
        if self.head() is None:
            return self._work_names(*inside)
        argv = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching")
        return tuple(sorted({line[3:] for line in self._names(*argv, "--", *inside)}))

    def lost(self, commits: Iterable[str]) -> tuple[str, ...]:
        """Those of some commits that HEAD does not reach: a squash or a rebase left them behind."""
        reached = self._text("rev-list", "HEAD").split() if self.head() else ()
        return tuple(sorted({*commits}.difference(reached)))

    def committed(self, path: Path, at: str | None = None) -> bytes | None:
        """The bytes of a file at HEAD, or at another commit; None if it is not there. Raises UsageError."""
        commit, inside = self.resolve(at) if at else self.head(), self._inside(path)
        entry = self._entries(commit, inside).get("") if commit else None
        return self._blob(entry[1]) if entry else None

    def touched(self, paths: Iterable[Path], base: str | None = None) -> tuple[str, ...]:
        """Every `COMMIT STATUS PATH` by which a commit of HEAD's history changed a file that was there before.

        Each commit is compared with each of its parents, with renames off: M, D or T; an added file is fine.
        With `base`, only commits that it has not.
        """
        import tempfile

        inside = [self._inside(path) for path in paths]
        span = ["HEAD", *([f"^{self.resolve(base)}"] if base else [])]
        if self.head() is None:
            return ()
        argv = ("diff-tree", "--stdin", "-m", "-r", "-z", "--name-status", "--no-renames", "--diff-filter=a")
        with tempfile.TemporaryFile() as commits:
            commits.write(self._bytes("rev-list", *span))
            commits.seek(0)
            words = iter(_decoded(self._bytes(*argv, "--", *inside, istream=commits)))
        found, commit = [], ""
        for word in words:
            if _COMMIT.fullmatch(word):
                commit = word
            else:
                found.append(f"{commit} {word} {next(words)}")
        return tuple(found)

    def extends(self, base: str, path: Path) -> None:
        """Every file under a folder at `base` is there, with the same bytes, at HEAD and in the working tree.

        Raises HistoryError that names the first that is not.
        """
        inside = self._inside(path)
        head = self.head()
        now = self._entries(head, inside) if head else {}
        for name, (_, blob) in sorted(self._entries(self.resolve(base), inside).items()):
            file = f"{inside}/{name}".rstrip("/")
            there = now.get(name, ("", ""))[1]
            if there != blob:
                what = f"was {'changed' if there else 'removed'} since {shown(base)}"
                raise HistoryError(file, what, f"it is permanent: git checkout {shown(base)} -- {file}")
        self.require_kept([path])

    def require_kept(self, paths: Iterable[Path]) -> None:
        """Every file that HEAD holds under some folders is in the working tree, with the same bytes.

        Raises HistoryError that names the first that is not.
        """
        head, read = self.head(), plain_reader(READ_MAX)
        for inside in map(self._inside, paths if head else ()):
            for name, (_, blob) in sorted(self._entries(str(head), inside).items()):
                file = f"{inside}/{name}".rstrip("/")
                try:
                    same = blob_name(read(self.top / file, file), blob) == blob
                except UsageError:
                    same = False
                if not same:
                    raise HistoryError(file, "is another in the working tree, or none", f"git checkout -- {file}")

    def _inside(self, path: Path) -> str:
        """A path relative to the top, which itself is empty. Links are followed, but not the last part."""
        full = path.parent.resolve() / path.name if path.name else path.resolve()
        if full.resolve() == self.top:
            return ""
        try:
            return full.relative_to(self.top).as_posix()
        except ValueError:
            raise UsageError(shown(path.name), "lies outside the repository", "move it inside") from None

    def _entries(self, commit: str, inside: str) -> dict[str, tuple[int, str]]:
        """Path below `inside` to mode and blob, at a commit; a file is the empty path below itself."""
        made: dict[str, tuple[int, str]] = {}
        for line in self._names("ls-tree", "-r", "-z", "--full-tree", commit, "--", *([inside] if inside else [])):
            head, _, path = line.partition("\t")
            mode, _, name = head.split(" ")
            if mode in (_LINK, _MODULE):
                raise UsageError(shown(path), "is a link or a submodule", "commit the file itself")
            below = path if not inside else path[len(inside) + 1 :]
            made[below] = (0o755 if mode == "100755" else 0o644, name)
        return made

    def _work_names(self, *inside: str) -> tuple[str, ...]:
        """Tracked and untracked files, without ignored ones and Python's own caches, from the top on."""
        argv = ("ls-files", "-z", "-co", "--exclude-standard", "--exclude=__pycache__", "--", *inside)
        names = sorted(set(self._names(*argv)))
        if len(names) > FILES_MAX:
            raise UsageError(shown(inside[0]), f"holds more than {FILES_MAX} files", "ignore what is no source")
        return tuple(names)

    def _work_paths(self, inside: str) -> tuple[str, ...]:
        """Paths below `inside` of the files that are there now."""
        names = (name for name in self._work_names(inside or ".") if os.path.lexists(self.top / name))
        return tuple(name[len(inside) + 1 :] if inside else name for name in names)

    def _work_file(self, inside: str, path: str, read: Callable[[Path, str], bytes]) -> SourceFile:
        name = f"{inside}/{path}" if inside else path
        data = read(self.top / name, name)
        return SourceFile.of(path, data, 0o755 if (self.top / name).stat().st_mode & stat.S_IXUSR else 0o644)

    def _blob(self, name: str) -> bytes:
        _, kind, size, data = self._git.get_object_data(name)
        if kind != b"blob" or size > FILE_BYTES_MAX:
            raise UsageError(name, f"is no file of at most {FILE_BYTES_MAX} bytes", "keep large files out")
        return bytes(data)

    def _commit(self, revision: str) -> str | None:
        if not revision or revision.startswith("-") or "\0" in revision:
            return None
        try:
            return self._text("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        except MachineError:
            return None

    def _names(self, *argv: str) -> list[str]:
        return _decoded(self._bytes(*argv))

    def _text(self, *argv: str) -> str:
        return self._bytes(*argv).decode("utf-8", "replace").strip()

    def _bytes(self, *argv: str, **streams: Any) -> bytes:
        options = {"stdout_as_string": False, "strip_newline_in_stdout": False} | streams
        try:
            return bytes(self._git.execute(["git", *argv], **options))
        except self._error as error:
            text = str(getattr(error, "stderr", "") or error).strip().strip("'").splitlines() or ["failed"]
            raise MachineError(f"git {argv[0]}", text[-1].strip(), "see what git fsck says") from None


def _decoded(data: bytes) -> list[str]:
    """What git ended with NUL each."""
    try:
        return [word.decode("utf-8") for word in data.split(b"\0")[:-1]]
    except UnicodeDecodeError as error:
        raise UsageError("git", f"a file's name is not UTF-8 ({error.object!r:.80})", "rename it") from None
