"""What a subject is made of: files, digests, commits; and what git's history may not hide."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import canonical, manifest, source
from pipeline.errors import HistoryError, LandingError, ManifestError, UsageError
from pipeline.source import Repository, Source
from tests.scratch import ADDER, commit, git, repository


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def collect(folder: Path, at: str | None = None) -> Source:
    return Repository(folder).collect(folder, manifest.load(folder), at=at)


def test_a_clean_tree_is_its_commit(folder: Path) -> None:
    """The working tree and HEAD give one value, with commit, subtree and digests that git and sha256 confirm."""
    made = collect(folder)
    assert made == collect(folder, at="HEAD") == collect(folder, at="main")
    assert made.commit == git(folder, "rev-parse", "HEAD")
    assert made.git_tree == git(folder, "rev-parse", "HEAD:adder")
    assert [file.path for file in made.files] == sorted(path.name for path in ADDER.iterdir() if path.is_file())
    rows = [["adder.c", canonical.sha256((folder / "adder.c").read_bytes())]]
    assert made.sources == canonical.sha256(canonical.dumps(rows))
    assert made.tools != made.sources


def edit(folder: Path) -> str:
    with (folder / "adder.c").open("a") as file:
        file.write("\n")
    return "adder.c"


def edit_and_stage(folder: Path) -> str:
    edit(folder)
    git(folder, "add", ".")
    return "adder.c"


def edit_unseen(folder: Path) -> str:
    git(folder, "update-index", "--assume-unchanged", "adder.c")
    return edit(folder)


def remove(folder: Path) -> str:
    (folder / "reference.py").unlink()
    return "reference.py"


def remove_from_index(folder: Path) -> str:
    git(folder, "rm", "-q", "--cached", "reference.py")
    (folder.parent / ".git" / "info" / "exclude").write_text("reference.py\n")
    return "reference.py"


def add(folder: Path) -> str:
    (folder / "new.c").write_text("")
    return "new.c"


def make_executable(folder: Path) -> str:
    (folder / "run.py").chmod(0o755)
    return "run.py"


def change_line_ends(folder: Path) -> str:
    """git itself calls this tree clean."""
    (folder.parent / ".git" / "info" / "attributes").write_text("* text=auto eol=crlf\n")
    (folder / "adder.c").write_bytes((folder / "adder.c").read_bytes().replace(b"\n", b"\r\n"))
    return "adder.c"


CHANGES = [edit, edit_and_stage, edit_unseen, remove, remove_from_index, add, make_executable, change_line_ends]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_whatever_is_not_in_head_makes_the_tree_dirty(folder: Path, change: object) -> None:
    """Bytes and modes decide, and no flag of the index; a dirty tree has no commit and no subtree."""
    name = change(folder)  # type: ignore[operator]
    made = collect(folder)
    assert (made.dirty, made.commit, made.git_tree) == ((name,), None, None)
    assert collect(folder, at="HEAD").dirty == ()


def test_ignored_files_and_pythons_caches_are_no_source(folder: Path) -> None:
    """A build's leftovers do not make a tree dirty."""
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "run.pyc").write_bytes(b"x")
    (folder / "left.o").write_bytes(b"x")
    (folder / ".gitignore").write_text("*.o\n")
    assert collect(folder).dirty == (".gitignore",)


def test_before_the_first_commit_all_is_dirty(tmp_path: Path) -> None:
    """The walk can go on as a dry run."""
    git(tmp_path, "init", "-q")
    (tmp_path / "adder").mkdir()
    for path in ADDER.iterdir():
        if path.is_file():
            (tmp_path / "adder" / path.name).write_bytes(path.read_bytes())
    made = collect(tmp_path / "adder")
    assert made.dirty == tuple(file.path for file in made.files)
    inside = Repository(tmp_path)
    assert inside.head() is None
    assert inside.committed(tmp_path / "adder" / "adder.c") is None
    assert inside.touched([tmp_path]) == ()
    assert inside.uncommitted([tmp_path])


def test_a_subject_may_be_the_whole_repository(tmp_path: Path) -> None:
    """Its subtree is then the commit's own tree."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "user.name", "A")
    git(tmp_path, "config", "user.email", "a@example.org")
    for path in ADDER.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    commit(tmp_path, "all")
    made = collect(tmp_path)
    assert made.folder == tmp_path.name
    assert made.git_tree == git(tmp_path, "rev-parse", "HEAD^{tree}")
    assert made == collect(tmp_path, at="HEAD")


def link(folder: Path) -> None:
    (folder / "other.c").symlink_to("adder.c")


def link_over(folder: Path) -> None:
    (folder / "adder.c").rename(folder.parent / "elsewhere.c")
    (folder / "adder.c").symlink_to("../elsewhere.c")


def fifo_over(folder: Path) -> None:
    (folder / "adder.c").unlink()
    os.mkfifo(folder / "adder.c")


def folder_link(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "x.c").write_text("")
    commit(folder, "sub")
    (folder / "sub").rename(folder.parent / "moved")
    (folder / "sub").symlink_to("../moved")


def inner_repository(folder: Path) -> None:
    (folder / "inner").mkdir()
    git(folder / "inner", "init", "-q")
    (folder / "inner" / "x.c").write_text("")
    commit_in = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    git(folder / "inner", "add", ".")
    git(folder / "inner", *commit_in, "commit", "-q", "-m", "x")


@pytest.mark.parametrize("plant", [link, link_over, fifo_over, folder_link, inner_repository], ids=lambda p: p.__name__)
def test_only_plain_files_are_a_source(folder: Path, plant: object) -> None:
    """A link, a FIFO, a folder behind a link, a repository inside: refused by name, and nothing hangs."""
    plant(folder)  # type: ignore[operator]
    with pytest.raises(UsageError) as caught:
        collect(folder)
    assert str(caught.value).startswith("UsageError: adder/")


def test_a_link_in_a_commit_is_refused_too(folder: Path) -> None:
    """`--at REV` is as strict as the working tree."""
    link(folder)
    commit(folder, "a link")
    with pytest.raises(UsageError, match=r"adder/other\.c: is a link or a submodule"):
        collect(folder, at="HEAD")


def test_a_glob_that_matches_nothing_is_a_mistake(folder: Path) -> None:
    """A misspelled glob would otherwise pin nothing."""
    subject = replace(manifest.load(folder), sources=("*.c", "*.cuh"))
    with pytest.raises(ManifestError, match=r"adder/landing\.toml: the glob \*\.cuh matches no file"):
        Repository(folder).collect(folder, subject)


def test_a_targets_own_sources_take_the_place_of_the_subjects(folder: Path) -> None:
    """Two targets of one tree can have two digests."""
    subject = manifest.load(folder)
    target = replace(subject.target(), sources=("*.c", "sample.txt"))
    made = Repository(folder).collect(folder, subject, target=target)
    assert made.sources == source.digest(made.files, ["*.c", "sample.txt"], where="here")
    assert made.sources != collect(folder).sources


def test_the_commits_of_an_increment_are_those_that_touch_the_subject(folder: Path) -> None:
    """Newest first, one line each; a commit that this history lost is said and is no error."""
    inside, first = Repository(folder), git(folder, "rev-parse", "HEAD")
    (folder.parent / "README").write_text("x")
    commit(folder.parent, "elsewhere")
    edit(folder)
    last = commit(folder.parent, "a line more")
    assert [line.split(" ", 1)[1] for line in inside.commits_between(first, last, folder)] == ["a line more"]
    assert len(inside.commits_between(None, last, folder)) == 2
    assert inside.commits_between("0" * 40, last, folder) == ("000000000000 is not in this history",)


def test_the_author_is_gits_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's name first, then the configured one; without any, a line that says what to set."""
    monkeypatch.delenv("GIT_AUTHOR_NAME", raising=False)
    assert Repository(folder).author() == "A. Tester"
    monkeypatch.setenv("GIT_AUTHOR_NAME", "B. Tester")
    assert Repository(folder).author() == "B. Tester"
    monkeypatch.setenv("GIT_AUTHOR_NAME", "")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    git(folder, "config", "--unset", "user.name")
    with pytest.raises(UsageError, match=r"git config user\.name"):
        Repository(folder).author()


def test_a_shallow_clone_says_so(folder: Path, tmp_path: Path) -> None:
    """An audit of history needs all of it."""
    edit(folder)
    commit(folder, "two")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{folder.parent}", "cut")
    assert Repository(tmp_path / "cut").is_shallow()
    assert not Repository(folder).is_shallow()


def test_committed_bytes_are_heads(folder: Path) -> None:
    """Not the working tree's, not the index's."""
    before = (folder / "adder.c").read_bytes()
    edit_and_stage(folder)
    inside = Repository(folder)
    assert inside.committed(folder / "adder.c") == before
    assert inside.committed(folder / "absent") is None


def test_clean_means_all_is_in_head_ignored_files_too(folder: Path) -> None:
    """A record that git ignores would never be committed."""
    inside, root = Repository(folder), folder.parent
    assert not inside.uncommitted([folder, root / "ledger"])
    (root / "ledger").mkdir()
    (root / "ledger" / "000001.json").write_text("{}")
    assert inside.uncommitted([root / "ledger"]) == ("ledger/000001.json",)
    assert not inside.uncommitted([folder])
    (root / ".gitignore").write_text("*.json\n")
    assert inside.uncommitted([root / "ledger"]) == ("ledger/000001.json",)
    (root / ".gitignore").unlink()
    commit(root, "record")
    assert not inside.uncommitted([root])
    (root / "ledger" / "000001.json").write_text("{ }")
    assert inside.uncommitted([root / "ledger"])


def test_a_commit_that_a_squash_left_behind_is_lost(folder: Path) -> None:
    """Though git still has it; one that HEAD reaches, however old, is not."""
    first = git(folder, "rev-parse", "HEAD")
    (folder / "sample.txt").write_text("1\n")
    second = commit(folder.parent, "more")
    git(folder, "reset", "-q", "--soft", first)
    third = commit(folder.parent, "squashed")
    assert Repository(folder).lost([first, second, third, "0" * 40]) == tuple(sorted((second, "0" * 40)))


@pytest.fixture
def ledger(folder: Path) -> Iterator[Path]:
    """A repository whose ledger has had two records, each its own commit."""
    made = folder.parent / "ledger"
    made.mkdir()
    for name in ("1", "2"):
        (made / name).write_text(name)
        commit(folder.parent, f"record {name}")
    assert Repository(folder).touched([made]) == ()
    yield made


def tampered(ledger: Path) -> list[str]:
    return [line.split(" ", 1)[1] for line in Repository(ledger).touched([ledger])]


def test_history_that_only_adds_is_untouched_by_branches_and_merges(ledger: Path) -> None:
    """A branch with a record of its own merges without a finding."""
    git(ledger, "checkout", "-q", "-b", "side", "HEAD~1")
    (ledger / "3").write_text("3")
    commit(ledger, "three")
    git(ledger, "merge", "-q", "-m", "merge", "main")
    assert tampered(ledger) == []


def test_a_changed_removed_or_renamed_record_is_found_though_a_later_commit_undid_it(ledger: Path) -> None:
    """Every commit is looked at, not only the newest tree."""
    (ledger / "1").write_text("one")
    commit(ledger, "change")
    (ledger / "1").write_text("1")
    commit(ledger, "change back")
    (ledger / "2").rename(ledger / "4")
    commit(ledger, "rename")
    git(ledger, "revert", "--no-edit", "HEAD")
    (ledger / "1").chmod(0o755)
    commit(ledger, "mode")
    (ledger / "2").unlink()
    (ledger / "2").symlink_to("1")
    commit(ledger, "link")
    assert sorted(tampered(ledger)) == sorted(["M ledger/1"] * 3 + ["D ledger/2", "D ledger/4", "T ledger/2"])


def test_a_merge_that_drops_a_record_of_one_parent_is_found(ledger: Path) -> None:
    """The merge equals its other parent, so `git log -- ledger` would not show it."""
    git(ledger, "checkout", "-q", "-b", "side", "HEAD~1")
    (ledger / "3").write_text("3")
    commit(ledger, "three")
    git(ledger, "merge", "-q", "-s", "ours", "-m", "ours", "main")
    assert git(ledger, "log", "--format=%s", "--diff-filter=D", "--", ".") == ""
    assert tampered(ledger) == ["D ledger/2"]


def test_a_replacement_ref_hides_nothing(ledger: Path) -> None:
    """git replace would show an innocent commit in the place of the one that tampered."""
    (ledger / "1").write_text("one")
    bad = commit(ledger, "change")
    git(ledger, "replace", bad, f"{bad}~1")
    assert tampered(ledger) == ["M ledger/1"]


def test_only_commits_that_the_base_lacks_are_looked_at(ledger: Path) -> None:
    """What the target branch already holds was looked at when it came."""
    (ledger / "1").write_text("one")
    base = commit(ledger, "change")
    (ledger / "5").write_text("5")
    commit(ledger, "five")
    assert Repository(ledger).touched([ledger], base) == ()
    assert len(Repository(ledger).touched([ledger], f"{base}~1")) == 1


def test_a_ledger_extends_its_base(ledger: Path) -> None:
    """Files may be added; nothing is raised."""
    (ledger / "3").write_text("3")
    commit(ledger, "three")
    assert Repository(ledger).extends("HEAD~1", ledger) is None


@pytest.mark.parametrize(
    ("change", "committed", "said"),
    [
        ("edit", True, "ledger/1: was changed since HEAD~1"),
        ("remove", True, "ledger/1: was removed since HEAD~1"),
        ("edit", False, "ledger/1: is another in the working tree, or none"),
        ("remove", False, "ledger/1: is another in the working tree, or none"),
        ("link", False, "ledger/1: is another in the working tree, or none"),
    ],
)
def test_a_base_that_is_not_extended_is_an_integrity_error(
    ledger: Path, change: str, committed: bool, said: str
) -> None:
    """At HEAD or on disk: named with the way back, exit code 3."""
    commit(ledger, "between")
    (ledger / "1").unlink()
    if change == "edit":
        (ledger / "1").write_text("one")
    elif change == "link":
        (ledger / "1").symlink_to("2")
    if committed:
        commit(ledger, "change")
    with pytest.raises(HistoryError) as caught:
        Repository(ledger).extends("HEAD~1", ledger)
    assert said in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("name", ["nowhere", "-x", "", "a\0b", "HEAD:adder", "x" * 300])
def test_a_revision_that_is_no_commit_is_a_usage_error(folder: Path, name: str) -> None:
    """It is never taken for an option, and the line stays short."""
    for ask in (Repository(folder).resolve, lambda rev: collect(folder, at=rev)):
        with pytest.raises(UsageError, match="is no commit of this repository") as caught:
            ask(name)
        assert len(str(caught.value)) < 200


def test_a_hooks_environment_does_not_lead_elsewhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside a git hook GIT_DIR and GIT_INDEX_FILE name another repository."""
    expected = collect(folder)
    other = repository(tmp_path / "other", "sum").parent
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert collect(folder) == expected
    assert not Repository(folder).uncommitted([folder])


def test_a_worktree_of_a_repository_is_one(folder: Path, tmp_path: Path) -> None:
    """Its .git is a file."""
    git(folder, "worktree", "add", "-q", str(tmp_path / "second"))
    assert collect(tmp_path / "second" / "adder") == collect(folder)


def test_outside_of_a_repository_there_is_one_line(tmp_path: Path) -> None:
    """What is wrong and what to do, exit code 2; the same for a path outside of the repository at hand."""
    with pytest.raises(UsageError, match="is not in a git repository; git init there"):
        Repository(tmp_path)
    inside = Repository(repository(tmp_path / "repo"))
    with pytest.raises(UsageError, match="lies outside the repository"):
        inside.uncommitted([tmp_path / "elsewhere"])


def test_without_git_there_is_one_line(folder: Path) -> None:
    """A machine without git is an environment error, exit code 4, and no traceback."""
    script = (
        "import sys; from pathlib import Path; from pipeline.errors import LandingError\n"
        "from pipeline.source import Repository\n"
        "try: Repository(Path(sys.argv[1]))\n"
        "except LandingError as error: print(error); sys.exit(error.exit_code)\n"
    )
    environ = {"PATH": "/nonexistent", "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", script, folder], env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (4, "")
    assert done.stdout.startswith("MachineError: git: cannot be used")
    assert done.stdout.count("\n") == 1


def test_a_broken_repository_is_one_line(folder: Path) -> None:
    """git's own last words, not its traceback."""
    (folder.parent / ".git" / "HEAD").write_text("nonsense")
    with pytest.raises(LandingError, match=r"MachineError: git [a-z-]+: .*not a git repository"):
        collect(folder)
