"""prove.py and room.py: a kit to evidence, on a machine that has little else, in as many calls as it takes."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import signal
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline import canonical, kit, protocol, prove, timing, verbs
from pipeline.errors import BuildError, IntegrityError, MachineError, ManifestError, UsageError, Waiting
from pipeline.proof import CANDIDATE, ROLES, Evidence, Plan
from pipeline.room import Room
from pipeline.subject import Bench, Figure, Refusal
from tests import drawn, landings

TOP = Path(__file__).parent.parent
TOOL = ("{python}", "adder/tool.py", "{candidate}", "{out}")
BENCH = Bench("step", ("{python}", "adder/tool.py", "{artifact}", "{out}"), 2, "one", ("cpu",), ())
SOUND = "import pathlib, sys\npathlib.Path(sys.argv[2], 'x.bin').write_bytes(pathlib.Path(sys.argv[1]).read_bytes())\n"


def small(folder: Path, tool: str, **changes: Any) -> Path:
    """A kit of one check, whose two sides run a tool that a test wrote."""
    objects = {canonical.sha256(data): data for data in (tool.encode(), b"candidate", b"baseline")}
    made = drawn.plan(
        trees={CANDIDATE: drawn.Tree(files=(("tool.py", canonical.sha256(tool.encode()), 0o644),))},
        artifacts={CANDIDATE: canonical.sha256(b"candidate"), "baseline": canonical.sha256(b"baseline")},
        **{"checks": (drawn.check(sides=(TOOL, TOOL)),), "mutants": ()} | changes,
    )
    kit.pack(folder / "kit", [made], objects)
    return folder / "kit"


def proved(folder: Path, tool: str, **changes: Any) -> tuple[Plan, Evidence]:
    """The plan of a small kit, and its evidence."""
    made = small(folder, tool, **changes)
    (evidence,) = prove.prove(made, folder / "evidence.json")
    return kit.load(made).plans[0], evidence


def adder(folder: Path) -> Path:
    """A kit of the adder's first landing: every check, two mutants."""
    staged = landings.staged(landings.house(folder, None))
    jobs = tuple(job for job in staged.plan.jobs if job.of in (CANDIDATE, "subtracts", "one-row-too-many"))
    kit.pack(folder / "kit", [dataclasses.replace(staged.plan, jobs=jobs)], staged.objects)
    return folder / "kit"


def outputs(evidence: Evidence) -> dict[str, object]:
    """What jobs left, without what they took."""
    return {seen.id: [(s.argv, s.code, s.files, s.inputs) for s in seen.sides] for seen in evidence.jobs}


def done(folder: Path) -> dict[str, bytes]:
    """The jobs and samples that a stopped proof has done."""
    files = [path for name in ("job", "sample") for path in folder.glob(f"evidence.json.work/*/done/{name}-*")]
    return {path.name: path.read_bytes() for path in files}


def test_evidence_answers_the_plan_and_is_judged(tmp_path: Path) -> None:
    """Both sides' files by digest, what the commands were fed, machine and time; the work folder is gone."""
    plan, evidence = proved(tmp_path, SOUND)
    assert protocol.judge(plan, evidence).verdict == "landed"
    (seen,) = evidence.jobs
    assert [[(f.name, f.sha256, f.bytes) for f in side.files] for side in seen.sides] == [
        [("x.bin", canonical.sha256(b"candidate"), 9)]
    ] * 2
    assert seen.sides[0].inputs == plan.reads(TOOL, of=CANDIDATE, tree=CANDIDATE)
    assert {"model", "cpus", "kernel", "libc", "python"} <= set(evidence.machine)
    assert sorted(evidence.time) == ["finishedOn", "startedOn"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evidence.json", "kit"]
    assert kit.read_evidence(tmp_path, (tmp_path / "evidence.json").read_bytes()) == (evidence,)


SLOW = (
    "import json, pathlib, sys, time\n"
    "time.sleep(0.1)\n"
    "name = 'bench.json' if 'step' in sys.argv[2] else 'x.bin'\n"
    "row = {'name': 'sum', 'stats': {'median': time.perf_counter() % 1 + 1, 'rounds': 3}}\n"
    "made = json.dumps({'benchmarks': [row]}) if 'step' in sys.argv[2] else 'the same'\n"
    "pathlib.Path(sys.argv[2], name).write_text(made)\n"
)


def test_a_proof_stops_when_its_time_is_over_and_goes_on_without_repeating(tmp_path: Path) -> None:
    """Exit code 7 each time; what was seen before a stop is in the evidence as it was seen, time and all."""
    bench = dataclasses.replace(BENCH, pairs=5)
    made, out = small(tmp_path, SLOW, benches=(bench,)), tmp_path / "evidence.json"
    with pytest.raises(Waiting, match="run the same command again") as caught:
        prove.prove(made, out, seconds=0)
    assert caught.value.exit_code == 7
    assert done(tmp_path) == {}
    kept: dict[str, bytes] = {}
    for _ in range(60):
        try:
            (evidence,) = prove.prove(made, out, seconds=1)
            break
        except Waiting:
            assert kept.items() < done(tmp_path).items()
            kept = done(tmp_path)
            assert not out.exists()
    seen = {f"job-{job.id}.json": job for job in evidence.jobs}
    seen |= {f"sample-step-{s.pair}-{s.role}.json": s for s in evidence.samples}
    assert len(kept) > 1
    assert {name: canonical.pack(seen[name]) for name in kept} == kept
    assert len({sample.medians_ps["sum"] for sample in evidence.samples}) == 15, (
        "a clock that never says one time twice"
    )
    plan = kit.load(made).plans[0]
    assert [(s.pair, s.role) for s in evidence.samples] == [
        (pair, role) for pair in range(5) for role in timing.turns(plan.seed, "step", pair)
    ]


def test_the_command_line_stops_with_exit_code_7(tmp_path: Path) -> None:
    """And one line that says what to do; the same command goes on to exit code 0."""
    made = small(tmp_path, SOUND)
    argv = [sys.executable, "-m", "pipeline", "prove", str(made), "--out", str(tmp_path / "e.json")]
    stopped = subprocess.run([*argv, "--seconds", "0"], cwd=TOP, capture_output=True, text=True, check=False)
    assert (stopped.returncode, stopped.stdout) == (7, "")
    assert stopped.stderr.startswith("Waiting: prove: the time that --seconds gave is over")
    went_on = subprocess.run(argv, cwd=TOP, capture_output=True, text=True, check=False)
    assert (went_on.returncode, went_on.stderr) == (0, "")
    assert went_on.stdout == "PROVED: 1 plans answered in e.json; carry it back to `land --evidence`\n"


def _bare_python(folder: Path) -> Path:
    """A Python that can import NumPy, pytest-benchmark with what it needs, the pipeline, and nothing else."""
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    names = (
        "numpy",
        "pytest",
        "_pytest",
        "pytest_benchmark",
        "pluggy",
        "iniconfig",
        "packaging",
        "cpuinfo",
        "pygments",
    )
    for name in names:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            path = Path(found.origin)
            path = path.parent if path.name == "__init__.py" else path
            (site / path.name).symlink_to(path)
            libraries = path.with_name(f"{name}.libs")
            if libraries.exists():
                (site / libraries.name).symlink_to(libraries)
    (site / "pipeline").symlink_to(TOP / "pipeline")
    return python


IMPORTED = """
import sys
import numpy, pytest_benchmark
import pipeline.prove, pipeline.__main__
code = pipeline.__main__.main(sys.argv[1:])
strangers = {"git", "nox", "elftools", "cupy", "rich", "hypothesis", "ziglang", "kernels"}
found = sorted(strangers & {name.partition(".")[0] for name in sys.modules})
assert not found, found
sys.exit(code)
"""


def test_a_kit_is_proved_by_a_python_that_has_little_else(tmp_path: Path) -> None:
    """No git, nox, compiler, ELF reader or rich is there or asked for, and the outputs are the same."""
    made = adder(tmp_path)
    python = _bare_python(tmp_path / "bare")
    for stranger in ("git", "nox", "elftools", "cupy", "rich"):
        there = subprocess.run([python, "-c", f"import {stranger}"], capture_output=True, check=False)
        assert there.returncode == 1, f"{stranger} can be imported: this Python shows nothing"
    environ = {"PATH": str(tmp_path / "nowhere"), "HOME": str(tmp_path)}
    argv = [python, "-I", "-c", IMPORTED, "prove", made, "--out", tmp_path / "there.json"]
    ran = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (there,) = kit.read_evidence(tmp_path, (tmp_path / "there.json").read_bytes())
    (here,) = prove.prove(made, tmp_path / "here.json")
    assert outputs(there) == outputs(here)
    assert protocol.judge(kit.load(made).plans[0], there).verdict == "landed"


def test_nothing_runs_after_a_check_was_red(tmp_path: Path) -> None:
    """No counterproof, no sample; and what the command printed is kept without the folders of this machine."""
    tool = "import sys\nsys.exit(f'{sys.argv[1]} cannot be read')\n"
    mutant = drawn.PlannedMutant(name="wrong", neutral=False, caught_by=("twice",))
    artifacts = {CANDIDATE: canonical.sha256(b"candidate"), "baseline": canonical.sha256(b"baseline")}
    objects = {canonical.sha256(data): data for data in (tool.encode(), b"candidate", b"baseline", b"wrong")}
    made = drawn.plan(
        trees={CANDIDATE: drawn.Tree(files=(("tool.py", canonical.sha256(tool.encode()), 0o644),))},
        artifacts=artifacts,
        checks=(drawn.check(sides=(TOOL, TOOL)),),
        mutants=(mutant,),
        benches=(BENCH,),
    )
    kit.pack(tmp_path / "kit", [made], objects)
    (evidence,) = prove.prove(tmp_path / "kit", tmp_path / "evidence.json")
    assert [seen.id for seen in evidence.jobs] == ["twice"]
    assert evidence.samples == ()
    assert [side.tail for side in evidence.jobs[0].sides] == ["adder.so cannot be read\n"] * 2
    assert str(tmp_path) not in (tmp_path / "evidence.json").read_text()
    assert protocol.judge(made, evidence).verdict == "refused"


def test_a_run_against_a_mutant_ends_where_it_was_caught(tmp_path: Path) -> None:
    """A case that was not refused is the last that ran; the candidate and a neutral mutant show all three."""
    case, word = ("{python}", "adder/tool.py", "{candidate}", "{out}"), "the middle one"
    refuses = tuple(Refusal((*case, text), 5, word, state=False) for text in ("1", "2", "3"))
    check = dataclasses.replace(drawn.check("thrice", verb="refuses"), refuses=refuses)
    taken = "pathlib.Path(sys.argv[1]).read_text() == 'wrong' and sys.argv[3] == '2'"
    tool = f"import pathlib, sys\nsys.exit(print({word!r}) or (0 if {taken} else 5))\n"
    artifacts = {name: canonical.sha256(name.encode()) for name in (CANDIDATE, "baseline", "wrong", "renamed")}
    mutants = tuple(
        drawn.PlannedMutant(name=name, neutral=not caught, caught_by=caught)
        for name, caught in (("wrong", ("thrice",)), ("renamed", ()))
    )
    made = drawn.plan(
        trees={CANDIDATE: drawn.Tree(files=(("tool.py", canonical.sha256(tool.encode()), 0o644),))},
        artifacts=artifacts,
        checks=(check,),
        mutants=mutants,
        rules=protocol.RULES,
    )
    objects = {canonical.sha256(data): data for data in (tool.encode(), *(name.encode() for name in artifacts))}
    kit.pack(tmp_path / "kit", [made], objects)
    (evidence,) = prove.prove(tmp_path / "kit", tmp_path / "evidence.json")
    codes = {seen.id: [side.code for side in seen.sides] for seen in evidence.jobs}
    assert codes == {"thrice": [5, 5, 5], "thrice@wrong": [5, 0], "thrice@renamed": [5, 5, 5]}
    assert protocol.judge(made, evidence).verdict == "landed"


def test_evidence_is_written_once(tmp_path: Path) -> None:
    """A name that is taken is refused before anything runs."""
    made = small(tmp_path, SOUND)
    (tmp_path / "evidence.json").write_text("mine")
    with pytest.raises(UsageError, match="evidence is written once"):
        prove.prove(made, tmp_path / "evidence.json")
    assert (tmp_path / "evidence.json").read_text() == "mine"
    assert not list(tmp_path.glob("*.work"))


def test_a_work_folder_that_was_changed_is_not_believed(tmp_path: Path) -> None:
    """A stopped proof goes on with what it left, and with nothing else."""
    made = small(tmp_path, SOUND)
    left = tmp_path / "evidence.json.work" / canonical.sha256(kit.load(made).plans[0].to_bytes())[:16] / "done"
    left.mkdir(parents=True)
    (left / "job-twice.json").write_bytes(b'{"id":"twice","sides":[]}')
    with pytest.raises(IntegrityError, match="not what a proof left: not in canonical form; remove the work folder"):
        prove.prove(made, tmp_path / "evidence.json")


def test_python_is_compiled_once_and_a_mutants_text_is_what_runs(tmp_path: Path) -> None:
    """Of a text with the same length and time, too; what it did not change is not compiled again."""
    texts = {"tool.py": b"import same, word\nprint(word.WORD)\n", "same.py": b"", "word.py": b"WORD = 'right'\n"}
    wrong = b"WORD = 'wrong'\n"
    rows = {name: (name, canonical.sha256(data), 0o644) for name, data in texts.items()}
    trees = {
        "wrong": drawn.Tree(files=(("word.py", canonical.sha256(wrong), 0o644),), over=CANDIDATE),
        CANDIDATE: drawn.Tree(files=tuple(rows.values())),
    }
    objects = {canonical.sha256(data): data for data in (*texts.values(), wrong)}
    room = Room(kit.Kit(plans=(), objects=objects), drawn.plan(trees=trees), tmp_path, None)
    for name in trees:
        room.spread(name)
        for path in room.tree(name).rglob("*.py"):
            os.utime(path, (1, 1))
    said, ready = {}, {}
    for name in trees:
        argv = [sys.executable, "-v", "adder/tool.py"]
        done = subprocess.run(argv, cwd=room.tree(name), capture_output=True, text=True, check=True)
        said[name] = done.stdout
        ready[name] = set(re.findall(r"# .*\.pyc matches .*/adder/(\w+)\.py\n", done.stderr))
    assert said == {"wrong": "wrong\n", CANDIDATE: "right\n"}
    assert ready == {"wrong": {"same"}, CANDIDATE: {"same", "word"}}


def test_paths_of_all_roles_are_of_one_length_and_no_two_are_one_file(tmp_path: Path) -> None:
    """A longer argument moves the stack of a process, and with it what is timed: 10 % were seen, for the same bytes."""
    opened = kit.load(small(tmp_path, SOUND))
    room = Room(opened, opened.plans[0], tmp_path / "room", None)
    paths = [Path(room.placeholders(BENCH.command, of=role, tree=CANDIDATE)[0]["artifact"]) for role in ROLES]
    assert len({len(str(path)) for path in paths}) == 1
    assert len({path.stat().st_ino for path in paths}) == len(ROLES)
    assert [path.read_bytes() for path in paths] == [b"baseline", b"candidate", b"baseline"]
    assert {path.name for path in paths} == {"adder.so"}


def test_a_sample_is_a_process_of_its_own_whose_command_line_gives_no_role_away(tmp_path: Path) -> None:
    """In the order of the coin; every command line of one length, and no word of baseline, candidate or control."""
    tool = (
        "import json, os, pathlib, sys\n"
        "seen = pathlib.Path(os.environ['HOME'], 'seen')\n"
        "seen.open('a').write(' '.join([str(os.getpid()), *sys.argv[1:]]) + '\\n')\n"
        "row = {'name': 'sum', 'stats': {'median': 1e-6, 'rounds': 3}}\n"
        "pathlib.Path(sys.argv[2], 'bench.json').write_text(json.dumps({'benchmarks': [row]}))\n"
        "pathlib.Path(sys.argv[2], 'x.bin').write_bytes(b'1')\n"
    )
    before = os.environ["HOME"]
    os.environ["HOME"] = str(tmp_path)
    try:
        plan, evidence = proved(tmp_path, tool, benches=(BENCH,))
    finally:
        os.environ["HOME"] = before
    lines = (tmp_path / "seen").read_text().splitlines()[2:]  # the check's two sides ran first
    ran = [line.split(" ", 1) for line in lines]
    assert len({pid for pid, _ in ran}) == len(ran) == 6
    assert len({len(line) for _, line in ran}) == 1
    assert not any(role in line.replace(str(tmp_path), "") for _, line in ran for role in ROLES)
    roles = [role for pair in range(2) for role in timing.turns(plan.seed, "step", pair)]
    assert [sample.role for sample in evidence.samples] == roles
    assert {sample.medians_ps["sum"] for sample in evidence.samples} == {1_000_000}
    assert {sample.rounds["sum"] for sample in evidence.samples} == {3}


def test_a_command_that_something_killed_is_no_verdict(tmp_path: Path) -> None:
    """SIGKILL comes from outside, as where memory has run out: nothing is held against the candidate."""
    with pytest.raises(MachineError, match="check twice: a command of it was killed from outside") as caught:
        proved(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert caught.value.exit_code == 4
    _, evidence = proved(tmp_path / "other", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    assert {side.code for side in evidence.jobs[0].sides} == {-signal.SIGSEGV}


WRITES = "import json, pathlib, sys\nout = pathlib.Path(sys.argv[2])\n(out / 'x.bin').write_bytes(b'1')\n"
BENCHES = {
    "none": ("", "left no bench.json"),
    "a failure": ("sys.exit('no timer')\n", "exit code 1: no timer"),
    "no JSON": ("(out / 'bench.json').write_text('{')\n", "left no bench.json"),
    "another format": ("(out / 'bench.json').write_text('{}')\n", "is not pytest-benchmark's: 'benchmarks'"),
    "a list": ("(out / 'bench.json').write_text('[]')\n", "is not pytest-benchmark's"),
    "NaN": ("(out / 'bench.json').write_text(row % 'NaN')\n", "is not pytest-benchmark's: nan is no time"),
    "Infinity": ("(out / 'bench.json').write_text(row % 'Infinity')\n", "inf is no time"),
    "a clock that stood still": ("(out / 'bench.json').write_text(row % '0.0')\n", "0.0 is no time"),
    "a clock that ran back": ("(out / 'bench.json').write_text(row % '-1e-9')\n", "-1e-09 is no time"),
    "two cases of one name": (
        "one = json.loads(row % '1.0')['benchmarks']\n"
        "    (out / 'bench.json').write_text(json.dumps({'benchmarks': one * 2}))\n",
        "two cases have one name",
    ),
    "rounds without end": (
        "(out / 'bench.json').write_text((row % '1.0').replace('3', str(2**70)))\n",
        "is no number of rounds",
    ),
    "text": ("(out / 'bench.json').write_text(row % '\"1\"')\n", "'1' is no time"),
}
ROW = 'row = \'{"benchmarks": [{"name": "sum", "stats": {"median": %s, "rounds": 3}}]}\'\n'


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_that_leaves_no_time_is_an_error_and_no_sample(tmp_path: Path, name: str) -> None:
    """Exit code 4: nothing was decided; a NaN is no time."""
    code, says = BENCHES[name]
    tool = WRITES + ROW + "if 'step' in sys.argv[2]:\n    " + (code or "pass\n")
    with pytest.raises(BuildError, match=says) as caught:
        proved(tmp_path, tool, benches=(BENCH,))
    assert caught.value.exit_code == 4
    assert str(tmp_path) not in str(caught.value)


def test_a_figure_is_kept_with_its_samples(tmp_path: Path) -> None:
    """Rows of name, unit and integers; a float is an error."""
    figure = Figure("bandwidth", ("{python}", "adder/tool.py", "{candidate}", "{out}"), "one", ("cpu",))
    write = "(out / 'figures.json').write_text(json.dumps([{'name': 'copy', 'unit': 'MB/s', 'values': %s}]))\n"
    plan, evidence = proved(
        tmp_path, WRITES + "if 'figure' in sys.argv[2]:\n    " + write % "[7, 9, 8]", figures=(figure,)
    )
    assert [(f.name, f.unit, f.values) for f in evidence.figures] == [("copy", "MB/s", (7, 9, 8))]
    assert protocol.judge(plan, evidence).figures[0].value == 8
    for values, says in (("[7.5]", "is of type float"), ("[2**70]", "is beyond 64 bits")):
        with pytest.raises(BuildError, match=rf"figure bandwidth: .* {says}"):
            proved(tmp_path / says, WRITES + "if 'figure' in sys.argv[2]:\n    " + write % values, figures=(figure,))


SEAM: Mapping[str, tuple[str, type[Exception], str]] = {
    "a link among the dumps": ("(out / 'y').symlink_to('x.bin')\n", ManifestError, "is a link among the dumps"),
    "inputs.json without origin": (
        '(out / \'inputs.json\').write_text(\'[{"name": "x", "digest": "0"}]\')\n',
        BuildError,
        "inputs.json: a command left a bad one",
    ),
    "layout.json of another format": (
        "(out / 'layout.json').write_text('[]')\n",
        ManifestError,
        "is not an object of lists",
    ),
}


@pytest.mark.parametrize("name", SEAM)
def test_a_tool_that_does_not_keep_to_the_seam_is_an_error(tmp_path: Path, name: str) -> None:
    """Neither green nor red."""
    code, error, says = SEAM[name]
    with pytest.raises(error, match=says):
        proved(tmp_path, WRITES + code)


def test_inputs_that_a_command_made_are_kept_after_those_that_it_was_given(tmp_path: Path) -> None:
    """Name, origin and digest, as it says them."""
    row = '[{"name": "x", "origin": "seed 1", "digest": "' + "1" * 64 + '"}]'
    plan, evidence = proved(tmp_path, WRITES + f"(out / 'inputs.json').write_text({row!r})\n")
    given, made = evidence.jobs[0].sides[0].inputs[:-1], evidence.jobs[0].sides[0].inputs[-1]
    assert given == plan.reads(TOOL, of=CANDIDATE, tree=CANDIDATE)
    assert (made.name, made.origin, made.digest) == ("x", "seed 1", "1" * 64)
    assert [i.name for i in protocol.judge(plan, evidence).checks[0].inputs] == ["tree", "x", "{candidate}"]


def test_a_command_that_is_too_slow_is_red(tmp_path: Path) -> None:
    """It is killed at its limit, and that is what was seen of it."""
    slow = drawn.check(sides=(TOOL, TOOL), limit_s=1)
    plan, evidence = proved(tmp_path, "import time\ntime.sleep(60)\n", checks=(slow,))
    assert all(side.timed_out and side.seconds_ms < 5000 for side in evidence.jobs[0].sides)
    assert verbs.outcome(slow, evidence.jobs[0], teeth=False).colour is verbs.Colour.RED
    assert "stopped at its time limit" in protocol.judge(plan, evidence).reasons[0]
