"""`python -m pipeline`: exact exit codes, one line for every error, JSON alone on standard output, help in no time."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline import errors, ledger, records
from pipeline.__main__ import CODES, main
from tests import faults, scratch, walks
from tests.walks import Ended, Scene

LINE = re.compile(r"[A-Z]\w+: .+: .+; .+")
VERBS = ("land", "compare", "audit", "verify", "prove", "log", "show", "restore", "teeth", "tour", "void")

# Every kind of error and its exit code: what a script may rely on.
TABLE = {
    "LandingError": 4,
    "UsageError": 2,
    "ManifestError": 2,
    "IntegrityError": 3,
    "BaselineMismatch": 3,
    "LedgerError": 3,
    "ArchiveError": 3,
    "EvidenceError": 3,
    "HistoryError": 3,
    "MachineError": 4,
    "BuildError": 4,
    "ToolchainMoved": 4,
    "Inconclusive": 5,
    "Busy": 6,
    "Waiting": 7,
}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Blocks sum and scale have landed: records 1 to 6."""
    return walks.landed().copy(tmp_path)


def run(scene: Scene, *argv: str) -> Ended:
    return scene.run(*argv, "--subject", "adder")


def test_every_error_class_has_its_exit_code() -> None:
    """One table; a class that is added must be added here."""
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.LandingError)]
    assert {one.__name__: one.exit_code for one in classes} == TABLE


@pytest.mark.parametrize("name", TABLE)
def test_every_error_is_one_line_of_where_what_and_what_to_do(name: str) -> None:
    """Whatever text it was given."""
    error = getattr(errors, name)("some/file", "is\nbroken", "mend it")
    assert str(error) == f"{name}: some/file: is broken; mend it"
    assert LINE.fullmatch(str(error))


def flip_view(scene: Scene) -> None:
    faults.flip(scene.current)


def shallow(scene: Scene) -> None:
    scratch.git(scene.root, "fetch", "-q", "--depth", "1", f"file://{scene.root}", "HEAD")
    (scene.root / ".git" / "shallow").write_text(scratch.git(scene.root, "rev-parse", "HEAD") + "\n")


def other_checks(scene: Scene) -> None:
    text = (scene.adder / "landing.toml").read_text()
    (scene.adder / "landing.toml").write_text(text.replace('"--seed", "1"', '"--seed", "2"'))


def fault(scene: Scene) -> None:
    scene.edit("adder.c", "out[r * width + i] = totals[i];", "out[r * width + i] = totals[i] + 1.0f;")


# exit code: what is done to the scene, the command line, how its last line begins
EXITS: dict[int, tuple[Callable[[Scene], object], tuple[str, ...], str]] = {
    0: (lambda scene: None, ("audit",), "SOUND: 6 records"),
    1: (fault, ("compare", "current", "work"), "DIFFERENT: twice"),
    2: (lambda scene: None, ("land", "clop"), "ManifestError: adder/landing.toml: block clop: there is no such block"),
    3: (flip_view, ("verify",), "BaselineMismatch: "),
    4: (shallow, ("audit",), "MachineError: git: this clone is shallow"),
    5: (other_checks, ("verify",), "Inconclusive: adder/landing.toml: no recorded dump can be made again"),
    6: (lambda scene: None, ("restore",), "Busy: "),
    7: (lambda scene: None, ("prove",), "Waiting: prove: the time that --seconds gave is over"),
}


@pytest.mark.parametrize("code", EXITS)
def test_every_exit_code_is_reached_by_a_real_command(scene: Scene, code: int) -> None:
    """The line that says why is the last of standard output for a verdict, else all of standard error."""
    plant, argv, says = EXITS[code]
    plant(scene)
    if code == 7:
        from tests.test_prove import SOUND, small

        argv = ("prove", str(small(scene.root, SOUND)), "--out", str(scene.root / "e.json"), "--seconds", "0")
    if code == 6:
        with ledger.lock(scene.root, "land scale"):
            done = run(scene, *argv)
    else:
        done = run(scene, *argv)
    assert done.code == code
    assert (done.last if code < 2 else done.err).startswith(says)
    if code > 1:
        assert LINE.fullmatch(done.err)
    assert re.search(rf"\b{code} [a-z]", CODES)


WRONG: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "an unknown verb": ("lend",),
    "an unknown option": ("land", "--dry"),
    "an option of another verb": ("audit", "--markdown"),
    "a word too many": ("land", "sum", "scale"),
    "a number that is none": ("show", "six"),
    "no number": ("show",),
    "a record that is not there": ("show", "7"),
    "record zero": ("show", "0"),
    "a negative record": ("show", "-1"),
    "no out": ("prove", "kit"),
    "no kit": ("prove", "nowhere", "--out", "e.json"),
    "no reason": ("void", "4"),
    "an empty reason": ("void", "4", "--why", " "),
    "an empty reason to take a landing back": ("void", "6", "--why", " "),
    "a void of nothing": ("void", "99", "--why", "x"),
    "a void of what is closed": ("void", "4", "--why", "x"),
    "a target that is not there": ("land", "--target", "cpu-x86_65"),
    "an empty target": ("land", "--target", ""),
    "a check that is not there": ("land", "--check", "twixe"),
    "a revision that is not there": ("land", "--at", "no-such"),
    "a revision like an option": ("land", "--at=--all"),
    "a base that is not there": ("audit", "--base", "no-such"),
    "an attempt that is not there": ("land", "--resume", "99"),
    "a trial of an attempt that goes on": ("land", "--resume", "99", "--dry-run"),
    "evidence for one check": ("land", "--evidence", "e.json", "--check", "twice"),
    "evidence and a kit": ("land", "--evidence", "e.json", "--kit", "kit"),
    "a kit where none is needed": ("land", "--kit", "kit"),
    "a record of another script": ("compare", "#\u00b2"),
    "a record of many digits": ("compare", "#" + "9" * 5000),
    "seconds without end": ("prove", "kit", "--out", "e.json", "--seconds", "1" + "0" * 400),
    "a root that is not there": ("log", "--root", "nowhere"),
    "a file as root": ("log", "--root", "adder/adder.c"),
    "a block with a slash": ("land", "../sum"),
    "a block with a newline": ("land", "su\nm"),
    "a long block": ("land", "x" * 300),
    "a block like an option": ("land", "--", "-sum"),
}


@pytest.fixture
def here(scene: Scene, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """The command line in this process: quicker by far, and not a step of it is another."""
    for name, value in scene.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(scene.root)
    before = signal.getsignal(signal.SIGTERM)

    def call(*argv: str) -> Ended:
        code = main([*argv])
        signal.signal(signal.SIGTERM, before)
        out, err = capfd.readouterr()
        return Ended(code, out, err.rstrip("\n"))

    return call


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_command_line_is_exit_code_2_and_one_line(scene: Scene, here: Callable[..., Ended], name: str) -> None:
    """No traceback, nothing on standard output but that current is intact, nothing written, nothing run."""
    before = scene.records()
    done = here(*WRONG[name], "--subject", "adder") if WRONG[name] else here()
    assert done.code == 2
    assert LINE.fullmatch(done.err), done.err
    assert [line for line in done.out.splitlines() if not line.startswith("snapshot ")] == []
    assert scene.records() == before
    assert scene.ran() == ()


def test_a_subject_that_is_not_there_is_exit_code_2(here: Callable[..., Ended]) -> None:
    """For every verb that has a subject; the default is `kernels`."""
    for verb in ("land", "compare", "audit", "verify", "log", "restore", "teeth", "tour"):
        for more in ((), ("--subject", "nowhere"), ("--subject", "adder/adder.c"), ("--subject", "x" * 5000)):
            done = here(verb, *more)
            assert (done.code, done.out) == (2, ""), verb
            assert LINE.fullmatch(done.err)


def test_help_names_every_verb_and_exit_code_and_loads_next_to_nothing() -> None:
    """No store, rule, NumPy, git or rich is imported for it: that is why it takes no time."""
    program = (
        "import sys; from pipeline.__main__ import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: code = end.code\n"
        "print(sorted(name for name in sys.modules if name.startswith('pipeline.')), file=sys.stderr)\n"
        "heavy = {'numpy', 'git', 'elftools', 'rich', 'tarfile', 'tomllib', 'concurrent.futures', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr); sys.exit(code)\n"
    )
    for argv in (["--help"], *([verb, "--help"] for verb in VERBS)):
        argv = [sys.executable, "-c", program, *argv]
        done = subprocess.run(argv, cwd=walks.TOP, capture_output=True, text=True, check=False)
        loaded, heavy = done.stderr.splitlines()
        assert (done.returncode, loaded, heavy) == (0, "['pipeline.__main__', 'pipeline.errors']", "[]")
        assert "7 waiting for evidence or interrupted" in " ".join(done.stdout.split())
    whole = subprocess.run([sys.executable, "-m", "pipeline", "-h"], cwd=walks.TOP, capture_output=True, text=True)
    assert all(re.search(rf"^    {verb} ", whole.stdout, re.MULTILINE) for verb in VERBS)


def test_an_audit_waits_for_no_landing(scene: Scene) -> None:
    """Beside one, what it read first would not be what lies there when it has come to it: exit code 6."""
    with ledger.lock(scene.root, "land scale"):
        done = run(scene, "audit")
    assert (done.code, done.err.split(":")[0]) == (6, "Busy")


def test_a_repository_without_a_commit_has_nothing_landed(tmp_path: Path) -> None:
    """Audit and verify have nothing to find in it."""
    scene = walks.fresh().copy(tmp_path)
    shutil.rmtree(scene.root / ".git")
    scratch.git(scene.root, "init", "-q")
    assert (run(scene, "audit").code, run(scene, "verify").last) == (0, "SOUND: nothing landed yet")


def test_a_letter_that_the_terminal_lacks_ends_no_walk(tmp_path: Path) -> None:
    """A block's title, or whatever else is said, is not worth a landing that stops between result and promote."""
    scene = walks.fresh().copy(tmp_path)
    manifest = scene.adder / "landing.toml"
    manifest.write_text(manifest.read_text().replace('title = "', 'title = "\u00e9: '))
    scene.commit("another title")
    done = scene.run("land", "sum", "--subject", "adder", env=scene.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.code, done.err, len(scene.records())) == (0, "", 3)
    told = scene.run("log", "--subject", "adder", env=scene.environ | {"PYTHONIOENCODING": "ascii"})
    assert told.code == 0 and "\\xe9: " in told.out


def test_json_of_log_and_show_is_the_records_as_stored(scene: Scene) -> None:
    """Byte for byte, a record a line; of one target where one is named."""
    stored = b"".join(data for _, data in sorted(scene.records().items()))
    assert run(scene, "log", "--json").out.encode() == stored
    assert run(scene, "log", "--json", "--target", walks.TARGET).out.encode() == stored
    assert run(scene, "log", "--json", "--target", "cuda").out == ""
    assert run(scene, "show", "5", "--json").out.encode() == scene.records()["000005.json"]


@pytest.mark.parametrize("argv", [("audit",), ("verify",), ("restore",), ("compare", "current", "current"), ("teeth",)])
def test_json_of_a_verdict_is_one_object_on_standard_output(scene: Scene, argv: tuple[str, ...]) -> None:
    """With its exit code; everything else that is said goes to standard error."""
    plain, done = run(scene, *argv), run(scene, *argv, "--json")
    row = json.loads(done.out)
    assert row == {"verdict": plain.last, "exitCode": plain.code}
    assert done.code == plain.code == 0
    assert done.out.count("\n") == 1


def test_an_error_leaves_standard_output_empty_with_json_too(scene: Scene) -> None:
    """So that what reads it never takes half an answer for one."""
    flip_view(scene)
    done = run(scene, "verify", "--json")
    assert (done.code, done.out) == (3, "")


def test_log_and_show_are_for_people(scene: Scene) -> None:
    """A table of six records, and a reviewer's page with a section for each thing that was proved."""
    log = run(scene, "log")
    assert [line.split()[1] for line in log.out.splitlines()] == ["kind", *["attempt", "result", "promote"] * 2]
    page = run(scene, "show", "5", "--markdown")
    titles = [line.removeprefix("## ") for line in page.out.splitlines() if line.startswith("## ")]
    assert titles[0] == "record 5: result of scale on cpu-x86_64"
    assert {"verdict", "increment", "checks", "checks and mutants", "sizes", "timing", "machine"} <= set(titles)
    done = run(scene, "show", "5", "--performance")
    assert done.code == 2 and "no figure of it has a place in a table" in done.err


def test_restore_makes_both_views_again(scene: Scene) -> None:
    """Whatever became of them; the archive is enough."""
    kept = {path: path.read_bytes() for path in scene.baselines.glob("*/*/adder.so")}
    assert len(kept) == 2
    for path in kept:
        path.unlink()
    scene.current.mkdir()
    assert run(scene, "audit").code == 3
    done = run(scene, "restore")
    assert (done.code, done.last) == (0, "SOUND: the views are what the newest promotes name")
    assert {path: path.read_bytes() for path in kept} == kept
    assert run(scene, "audit").code == 0


def test_a_void_by_hand_takes_a_record_back_and_says_who_and_why(scene: Scene) -> None:
    """Once; it never changes what is current."""
    artifact = scene.current.read_bytes()
    done = run(scene, "void", "5", "--why", "the machine was throttled")
    assert (done.code, done.last) == (0, "VOID: record 5, by record 7")
    void = records.from_bytes(scene.records()["000007.json"])
    assert isinstance(void, records.Void)
    assert (void.voids, void.who, void.why) == (5, "A. Tester", "the machine was throttled")
    again = run(scene, "void", "5", "--why", "twice")
    assert (again.code, len(scene.records())) == (2, 7)
    assert scene.current.read_bytes() == artifact
    scene.commit("a correction")
    assert run(scene, "audit").code == 0


def test_a_reader_that_goes_away_is_no_fault(scene: Scene) -> None:
    """A closed standard output is exit code 7 and no traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "pipeline", "log", "--subject", "adder"]
    pipe = subprocess.PIPE
    done = subprocess.run(argv, cwd=scene.root, env=scene.environ, stdout=writer, stderr=pipe, text=True, check=False)
    os.close(writer)
    assert done.returncode == 7
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_is_exit_code_7_and_one_line(scene: Scene, number: signal.Signals) -> None:
    """What was done is kept, and the same command goes on."""
    scene.hold(" dump ")
    process = scene.start("verify", "--subject", "adder")
    scene.held()
    process.send_signal(number)
    done = walks.ended(process)
    assert (done.code, done.err) == (7, "Waiting: interrupted: what was done is kept; run the same command again")
    scene.let_go()
    assert run(scene, "verify").code == 0
