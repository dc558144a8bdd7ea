"""Each real accident of the seed, planted again: what it met there by luck, it meets here by a rule."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels import __main__ as tools
from kernels import artifact
from kernels.engine.errors import Refused
from pipeline import build, canonical, claims, commands, manifest, outputs, records, tree, verbs
from pipeline.baselines import Baselines
from pipeline.errors import UsageError
from tests import walks
from tests.walks import TARGET, Scene

TOP = Path(__file__).parent.parent
UNCALLED = """
/* Called by nobody, and emitted: it is not static. */
int sum_in_pairs(float *totals, const float *x, float *out, int rows, int width) {
    for (int n = 0; n + 1 < rows * width; n += 2) out[n] = (x[n] + x[n + 1]) + totals[n % width];
    return ACCEPTED;
}
"""


def newest(scene: Scene) -> records.Result:
    """The newest result."""
    book = [records.from_bytes(data) for data in scene.records().values()]
    return [record for record in book if isinstance(record, records.Result)][-1]


# --- 3.2, first reason: a digest was kept, and not how to get it again ---

WITHOUT: dict[str, Callable[[claims.Check], claims.Check]] = {
    "its command": lambda check: dataclasses.replace(check, argv=()),
    "a word of a command": lambda check: dataclasses.replace(check, argv=((), ())),
    "its inputs": lambda check: dataclasses.replace(check, inputs=()),
    "an input's origin": lambda check: dataclasses.replace(
        check, inputs=(claims.Input(name="x", origin="", digest="0" * 64),)
    ),
    "an input's digest": lambda check: dataclasses.replace(
        check, inputs=(claims.Input(name="x", origin="seed 1", digest=""),)
    ),
}


@pytest.mark.parametrize("what", WITHOUT)
def test_a_digest_without_the_way_to_get_it_again_is_no_record(what: str) -> None:
    """A check of a real record that lacks this cannot be built."""
    (check,) = newest(walks.landed()).checks
    assert check.outputs is not None
    with pytest.raises(ValueError, match=r"no command line|names no input|has no origin|has no digest"):
        WITHOUT[what](check)


def test_what_a_record_says_is_enough_to_get_its_digest_again(tmp_path: Path) -> None:
    """From record and archive alone: its command, on its artifact, beside its tools, gives the recorded listing."""
    scene = walks.landed()
    result, archive = newest(scene), Baselines(scene.baselines)
    (check,) = result.checks
    assert result.source.archive is not None
    kept = tree.untar(archive.fetch(result.source.archive.sha256), archive.fetch)
    tree.copy_out(kept, tmp_path / "tools")
    artifact = next(row.digest for row in check.inputs if row.name == "{candidate}")
    out = tmp_path / "out"
    out.mkdir()
    where = {"python": sys.executable, "candidate": str(archive.path(artifact)), "out": str(out)}
    watched, *argv = commands.fill(check.argv[0], where)
    done = commands.run(argv, cwd=tmp_path / "tools", env={}, limit_s=30, log=tmp_path / "log")
    assert (watched, done.code) == ("watched", 0)
    assert verbs.listing_of(outputs.listing(out)) == check.outputs


# --- 3.2, second reason: the baseline was overwritten by its own rebuild ---


def test_a_build_cannot_write_below_baselines(tmp_path: Path) -> None:
    """Neither into `current` nor into the archive, nor through a link: refused before the command runs."""
    scene = walks.landed().copy(tmp_path)
    subject = manifest.load(scene.adder)
    before = {path: path.read_bytes() for path in scene.baselines.rglob("*") if path.is_file()}
    (tmp_path / "aside").symlink_to(scene.baselines / "current" / TARGET)
    for out in (scene.baselines / "current" / TARGET, scene.baselines / "archive" / "new", tmp_path / "aside" / "new"):
        with pytest.raises(UsageError, match="lies below a folder named baselines; build in another folder"):
            build.build(subject, subject.target(), scene.root, out)
    assert {path: path.read_bytes() for path in scene.baselines.rglob("*") if path.is_file()} == before
    assert scene.ran() == ()


@pytest.mark.parametrize(("when", "recorded"), [(" cc ", 6), (" bench ", 8)], ids=["building", "timing"])
def test_a_command_that_overwrites_the_baseline_is_seen(tmp_path: Path, when: str, recorded: int) -> None:
    """The copy taken before is what is compared; nothing is promoted over a baseline that changed meanwhile."""
    scene = walks.landed().copy(tmp_path)
    scene.write("clip")
    scene.commit("adder: block clip")
    was = scene.current.read_bytes()
    sound = (scene.home / "watched").read_text()
    meddles = f'case "$*" in *"{when}"*) echo rebuilt > {scene.current};; esac\nexec'
    (scene.home / "watched").write_text(sound.replace("exec", meddles))
    ended = scene.run("land", "clip", "--subject", "adder")
    digest = canonical.sha256(b"rebuilt\n")
    assert ended.code == 3
    assert f"adder.so: is {digest}, promoted was {canonical.sha256(was)}; find out who changed it" in ended.err
    assert len(scene.records()) == recorded
    (scene.home / "watched").write_text(sound)
    assert scene.run("restore", "--subject", "adder").code == 0
    assert scene.current.read_bytes() == was
    assert scene.land("clip").last == "LANDED: clip on cpu-x86_64: record 8"
    assert newest(scene).baseline == claims.Baseline(sequence=6, sha256=canonical.sha256(was))
    assert (scene.baselines / "previous" / TARGET / "adder.so").read_bytes() == was


# --- 4.1: `previous` was not refreshed, and two blocks were compared as one ---


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """All three blocks have landed: promotes 3, 6 and 9."""
    scene = walks.landed().copy(tmp_path_factory.mktemp("three"))
    scene.write("clip")
    scene.commit("adder: block clip")
    scene.land("clip")
    scene.commit("land clip")
    return scene


@pytest.mark.parametrize(
    ("a", "b", "span"),
    [
        ("previous", "current", "one block: clip"),
        ("#3", "#6", "one block: scale"),
        ("#3", "current", "cumulative: scale+clip"),
        ("aside.so", "current", "cumulative: scale+clip"),
    ],
)
def test_two_blocks_are_not_compared_as_one(three: Scene, a: str, b: str, span: str) -> None:
    """What lies between the operands is said, also of a copy that somebody kept in a folder of their own."""
    first = records.from_bytes(three.records()["000003.json"]).artifact.sha256
    (three.root / "aside.so").write_bytes((three.baselines / "archive" / first).read_bytes())
    ended = three.run("compare", a, b, "--subject", "adder")
    assert ended.code == 0
    assert f"compare   {span}\n" in ended.out


@pytest.mark.parametrize("view", ["current", "previous"])
def test_a_view_that_nobody_refreshed_stops_everything(tmp_path: Path, three: Scene, view: str) -> None:
    """Committed as it is, a view of an older promote is exit 3, and nothing is run; `restore` makes it again."""
    scene = three.copy(tmp_path)
    older = records.from_bytes(scene.records()["000003.json"]).artifact.sha256
    path = scene.baselines / view / TARGET / "adder.so"
    path.write_bytes((scene.baselines / "archive" / older).read_bytes())
    scene.commit("forget a baseline")
    verbs = ("compare", "verify", "land") if view == "current" else ("compare", "verify")
    for verb in verbs:
        ended = scene.run(verb, "--subject", "adder")
        assert ended.code == 3
        assert f"{view}/{TARGET}/adder.so: is {older}, promoted was " in ended.err
    assert scene.ran() == ()
    assert scene.run("restore", "--subject", "adder").code == 0
    assert scene.run("audit", "--subject", "adder").code == 0


# --- 3.2: `the same size` stood for `the same binary`, until code that nobody calls was emitted ---


def test_uncalled_code_is_measured_and_proved(tmp_path: Path) -> None:
    """The artifact grows while every dump stays: sizes are those of the bytes, and everything is checked and timed."""
    scene = walks.landed().copy(tmp_path)
    path = scene.adder / "adder.c"
    path.write_text(path.read_text() + UNCALLED)
    scene.commit("adder: a function that nobody calls")
    was = scene.current.stat().st_size
    scene.land("scale")
    result = newest(scene)
    assert result.sizes.artifact == (was, scene.current.stat().st_size)
    assert scene.current.stat().st_size > was
    assert result.sizes.kernels["sum_in_pairs"][0] is None
    assert result.timing
    assert all(check.green_in is None for check in result.checks)


def test_equal_size_is_no_proof_of_identity(tmp_path: Path) -> None:
    """Another artifact of the same size is timed and checked like any other; only equal bytes waive that."""
    scene = walks.landed().copy(tmp_path)
    scene.edit("adder.c", "rows < 1 ||", "rows < 2 ||")
    scene.commit("adder: one row is refused")
    was, size = scene.current.read_bytes(), scene.current.stat().st_size
    scene.land("scale")
    result = newest(scene)
    assert result.sizes.artifact == (size, size)
    assert scene.current.read_bytes() != was
    assert result.timing
    assert not any("keeps its bytes" in reason for reason in result.reasons)
    scene.commit("land: one row is refused")
    scene.edit("adder.c", "row after row;", "one row after another;")
    scene.commit("adder: a comment")
    scene.land("scale")
    same = newest(scene)
    assert same.artifact == result.artifact
    assert not same.timing
    assert any("keeps its bytes" in reason for reason in same.reasons)


# --- rows: a bind of what came later killed the old library, so that old and new could not be compared ---


def test_an_older_artifact_runs_beside_a_newer_one_and_lacks_by_name_what_came_later() -> None:
    """The first that landed, and this tree's: both give the same logits, and only the call of a missing entry fails."""
    ledger, archive = TOP / "ledger", TOP / "baselines" / "archive"
    book = [records.from_bytes(path.read_bytes()) for path in sorted(ledger.iterdir())]
    first = next(row for row in book if isinstance(row, records.Promote) and row.target == TARGET)
    logits = []
    for path in (archive / first.artifact.sha256, artifact.tree()):
        opened = artifact.load(path)
        config = opened.entry("shape")("tiny", layers="hybrid")
        engine = opened.entry("open")(opened.binary, config, opened.entry("Synthetic")(1), capacity=2)
        engine.forward(7)
        logits.append(engine.logits().tobytes())
        engine.close()
    assert logits[0] == logits[1] != b""
    with pytest.raises(Refused, match="has no entry forward_rows"):
        artifact.load(archive / first.artifact.sha256).entry("forward_rows")


# --- rows: a proof held one form against itself, and was green ---


def test_a_form_held_against_itself_is_seen(tmp_path: Path) -> None:
    """What each form launched is left beside what it computed: twice the same form launched the same."""
    for name, form in (("singles", "singles"), ("again", "singles"), ("rows", "rows")):
        command = ["mt", "--shape", "tiny", "--layers", "attn", "--rows", "3", "--prefix", "1", "--leave", "launches"]
        assert tools.main([*command, "--form", form, "--out", str(tmp_path / name)]) == 0
    launches = {name: (tmp_path / name / "launches.i32").read_bytes() for name in ("singles", "again", "rows")}
    assert launches["singles"] == launches["again"] != launches["rows"]


# --- rows: a precheck asked less than the body needed, which then failed when earlier layers had written ---


@pytest.mark.parametrize("matrix", ["in_proj_qkv", "in_proj_z", "out_proj"])
def test_what_the_last_layer_lacks_is_refused_before_the_first_has_written(tmp_path: Path, matrix: str) -> None:
    """Exit code 5 and the reason; the state before and after, keys and values included, is the same bytes."""
    case = ["refusals", "--case", f"rows-lacks-linear_attn.{matrix}", "--out", str(tmp_path)]
    assert tools.main(case) == 5
    assert (tmp_path / "before.bin").read_bytes() == (tmp_path / "after.bin").read_bytes() != b""
