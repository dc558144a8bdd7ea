"""landing.toml: what is read, what is filled in, and how every mistake is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline import manifest, placeholders
from pipeline.errors import ManifestError, UsageError
from pipeline.subject import matches, suggest
from tests.scratch import ADDER

SMALL = """
[subject]
name = "small"
sources = ["*.c"]
tools = ["*.py"]

[target.cpu]
artifact = "small.so"
build = ["cc", "small.c", "-o", "{out}/small.so"]
[target.gpu]
artifact = "small.cubin"
build = ["nvcc", "small.c", "-o", "{out}/small.cubin"]
needs = "gpu"

[block.a]
title = "first"
[block.b]
title = "second"
[block.c]
title = "third"

[input.data]
path = "data/numbers.txt"
origin = "by hand"

[check.twice]
verb = "same"
sides = [["{python}", "run.py", "{candidate}", "{out}"], ["{python}", "run.py", "{candidate}", "{out}"]]

[check.limits]
since = "b"
until = "c"
targets = ["gpu"]
verb = "refuses"
[[check.limits.refuses]]
argv = ["{python}", "run.py", "{candidate}"]
word = "rows"

[mutant.fault]
file = "small.c"
find = "1"
replace = "2"
caught_by = ["twice", "limits"]

[mutant.nothing]
file = "small.c"
find = "1"
replace = "1 "
neutral = true

[bench.step]
command = ["{python}", "bench.py", "{artifact}", "{out}"]
"""


def small(*edits: tuple[str, str]) -> manifest.Subject:
    text = SMALL
    for old, new in edits:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    return manifest.parse(text.encode(), folder="small")


def test_everything_that_a_manifest_may_leave_out_has_its_stated_default() -> None:
    """alpha 5 %, refusal code 5, margin 3 %, equal bytes, 13 pairs, 600 s, since the first block, on all targets."""
    subject = small()
    assert (subject.alpha_ppm, subject.refusal_code, subject.folder) == (50_000, 5, "small")
    cpu, gpu = subject.targets
    assert (cpu.margin_ppm, cpu.reproducible, cpu.needs, cpu.proved, cpu.toolchain) == (30_000, "bytes", None, True, ())
    assert gpu.needs == "gpu"
    assert subject.sources_of(cpu) == ("*.c",)
    check, limits = subject.checks
    assert (check.since, check.until, check.limit_s, check.targets) == ("a", None, 600, ("cpu", "gpu"))
    assert (limits.refuses[0].code, limits.refuses[0].state) == (5, False)
    assert (subject.block("a").gate, subject.block("a").targets) == ("regression", ("cpu", "gpu"))
    assert subject.benches[0].pairs == 13


def test_a_check_runs_from_since_until_until_on_its_targets() -> None:
    """`since` is part of the span, `until` is not, and another target's checks stay away."""
    subject = small()
    for target, block, ids in [
        ("cpu", "a", ["twice"]),
        ("cpu", "b", ["twice"]),
        ("gpu", "b", ["twice", "limits"]),
        ("gpu", "c", ["twice"]),
    ]:
        assert [check.id for check in subject.checks_at(target, block)] == ids
    assert [mutant.name for mutant in subject.mutants_at("cpu", "c")] == ["fault", "nothing"]
    assert [bench.name for bench in subject.benches_at("gpu", "a")] == ["step"]


def test_the_first_target_is_the_default_one_and_blocks_keep_their_order() -> None:
    """Order in the file is order of landing."""
    subject = small()
    assert subject.target() == subject.target("cpu")
    assert [subject.order(name) for name in ("a", "b", "c")] == [0, 1, 2]
    assert [block.name for block in small(('title = "second"', 'title = "s"\ntargets = ["gpu"]')).blocks_of("cpu")] == [
        "a",
        "c",
    ]


SIDE, STEP = '"{candidate}", "{out}"], [', '"{artifact}", "{out}"]'
MISTAKES = [
    ('name = "small"', 'nam = "small"', "subject.nam: unknown key; did you mean name"),
    ("[input.data]", "[inptu.data]", "inptu: unknown key; did you mean input"),
    ("sides = [[", "sidez = [[", "check.twice.sidez: unknown key; did you mean sides"),
    ('name = "small"', 'name = "Small"', "subject.name: is not a name"),
    ('name = "small"', "name = 3", "subject.name: is not a name"),
    ('name = "small"', f'name = "{"x" * 300}"', "subject.name: is not a name"),
    ('sources = ["*.c"]', 'sources = "*.c"', "subject.sources: is not a list"),
    ('sources = ["*.c"]', "sources = []", "subject.sources: is not a list of 1 or more"),
    ('sources = ["*.c"]', "", "subject.sources: is missing"),
    ('sources = ["*.c"]', 'sources = ["../*.c"]', "subject.sources.0: ../*.c is not a plain relative path"),
    ('sources = ["*.c"]', 'sources = ["/etc/*"]', "subject.sources.0: /etc/* is not a plain relative path"),
    ('sources = ["*.c"]', 'sources = ["a**b"]', "subject.sources.0: a**b is not a glob"),
    ('sources = ["*.c"]', 'sources = ["[a-z].c"]', "subject.sources.0: [a-z].c is not a glob"),
    ("[target.cpu]", '[target."../cpu"]', "target.../cpu: is not a name"),
    ("[target.cpu]", '[target."-rf"]', "target.-rf: is not a name"),
    ("[target.cpu]", '[target."a\\u0000b"]', "is not a name"),
    ("[target.cpu]", '[target."cp\\n"]', "is not a name"),
    ("[block.a]", f"[block.{'x' * 300}]", "is not a name"),
    ('artifact = "small.so"', 'artifact = "../small.so"', "target.cpu.artifact: is not a bare file name"),
    ('build = ["cc",', 'build = ["",', "target.cpu.build.0: names no program"),
    ('build = ["cc", "small.c", "-o", "{out}/small.so"]', "build = []", "target.cpu.build: is not a list"),
    ("{out}/small.so", "small.so", "target.cpu.build: does not mention {out}"),
    ("{out}/small.so", "{out}/{candidate}", "target.cpu.build: {candidate}: unknown placeholder"),
    ("{out}/small.so", "{out}/{", "target.cpu.build: has a brace that belongs to no placeholder"),
    ('needs = "gpu"', "margin_ppm = -1", "target.gpu.margin_ppm: is not a whole number in range; give 0 to 1000000"),
    ('needs = "gpu"', "margin_ppm = true", "target.gpu.margin_ppm: is not a whole number"),
    ('needs = "gpu"', "margin_ppm = 0.5", "target.gpu.margin_ppm: is not a whole number"),
    (
        'needs = "gpu"',
        'reproducible = "byte"',
        "reproducible: byte is not among bytes, payload, no; did you mean bytes",
    ),
    ('needs = "gpu"', 'proved = "no"', "target.gpu.proved: is not true or false"),
    (
        'needs = "gpu"',
        'proved = false\nreproducible = "no"',
        "target.gpu.reproducible: is not bytes",
    ),
    ('title = "first"', 'gate = "regression"', "block.a.title: is missing"),
    ('title = "first"', 'title = ""', "block.a.title: is empty"),
    ('title = "first"', 'title = "x"\ngate = "improvement"', "block.a.faster_on: goes with gate"),
    (
        'title = "first"',
        'title = "x"\ntargets = ["gqu"]',
        "block.a.targets: gqu: there is no such target; did you mean gpu",
    ),
    (
        'title = "first"',
        'title = "x"\ngate = "improvement"\ntargets = ["cpu"]\nfaster_on = ["gpu"]',
        "block.a.faster_on: names a target on which",
    ),
    ('verb = "same"', 'verb = "sam"', "check.twice.verb: sam is not among same, differs"),
    ('verb = "same"', 'verb = "differs"', "check.twice.differs: is missing; add [check.twice.differs]"),
    ('verb = "same"', 'verb = "same"\nclean = {absent = "x"}', "check.twice.clean: does not belong to the verb same"),
    ('verb = "refuses"', 'verb = "within"', "check.limits.refuses: does not belong to the verb within"),
    (
        '[["{python}", "run.py", "{candidate}", "{out}"], ',
        "[",
        "check.twice.sides: 1 sides; the verb same takes 2 to 16",
    ),
    (SIDE, '"{candidate}"], [', "check.twice.sides.0: does not mention {out}"),
    (SIDE, '"{candidat}", "{out}"], [', "{candidat}: unknown placeholder; did you mean candidate"),
    (SIDE, '"{candidate:gqu}", "{out}"], [', "there is no such target; did you mean gpu"),
    (SIDE, '"{archive:d}", "{out}"], [', "{archive:d}: there is no such block"),
    (SIDE, '"{tools:d}", "{out}"], [', "{tools:d}: there is no such block"),
    (SIDE, '"{input:date}", "{out}"], [', "{input:date}: there is no such input; did you mean data"),
    (SIDE, '"{artifact}", "{out}"], [', "check.twice.sides.0: {artifact}: unknown placeholder"),
    ('since = "b"', 'since = "bb"', "check.limits.since: bb: there is no such block"),
    ('until = "c"', 'until = "b"', "check.limits.until: b does not come after b"),
    ('targets = ["gpu"]', 'targets = ["gpu", "gpu"]', "check.limits.targets: holds one item twice"),
    ('word = "rows"', "", "check.limits.refuses.word: is missing"),
    (
        'word = "rows"',
        'word = "rows"\ncode = 0',
        "check.limits.refuses.code: is not a whole number in range; give 1 to 255",
    ),
    ('word = "rows"', 'word = "rows"\nstate = true', "check.limits.refuses: does not mention {out}"),
    ('verb = "same"', 'verb = "same"\nenv = {"A B" = "1"}', "check.twice.env.A B: is not a variable's name"),
    ('verb = "same"', 'verb = "same"\nteeth = ["{shape}"]', "{shape}: unknown placeholder"),
    ('verb = "same"', 'verb = "same"\nlimit_s = 0', "check.twice.limit_s: is not a whole number in range"),
    ('file = "small.c"', 'file = "small.h"', "mutant.fault.file: small.h is no source and no tool"),
    ('file = "small.c"', 'file = "../small.c"', "mutant.fault.file: ../small.c is not a plain relative path"),
    ('file = "small.c"', 'file = "/small.c"', "mutant.fault.file: /small.c is not a plain relative path"),
    ('file = "small.c"', 'file = "a\\u0000.c"', "mutant.fault.file: is empty, holds a NUL or is too long"),
    ('replace = "2"', 'replace = "1"', "mutant.fault.replace: equals find"),
    ("[mutant.fault]", "[mutant.candidate]", "mutant.candidate: is the word for an artifact that is no mutant"),
    ("[mutant.fault]", "[mutant.baseline]", "mutant.baseline: is the word for an artifact that is no mutant"),
    ("[mutant.nothing]", "[mutant.control]", "mutant.control: is the word for an artifact that is no mutant"),
    ('find = "1"', 'find = ""', "mutant.fault.find: is empty"),
    ('"limits"]', '"limit"]', "mutant.fault.caught_by: limit: there is no such check; did you mean limits"),
    ("neutral = true", "", "mutant.nothing.caught_by: is neither caught nor neutral"),
    ("neutral = true", 'neutral = true\ncaught_by = ["twice"]', "mutant.nothing.caught_by: is both neutral and caught"),
    ("neutral = true", "neutral = true\nonly = true", "mutant.nothing.only: a neutral mutant is caught by none"),
    ("neutral = true", 'caught_by = ["twice"]', "mutant: none is neutral"),
    (
        'caught_by = ["twice", "limits"]',
        'caught_by = ["twice"]',
        "check.limits: has no mutant to catch at block b on gpu",
    ),
    ('find = "1"', 'find = "1"\nsince = "b"', "check.twice: has no mutant to catch at block a on cpu"),
    (
        "[mutant.nothing]",
        '[mutant.early]\nfile = "small.c"\nfind = "3"\nreplace = "4"\ncaught_by = ["limits"]\n[mutant.nothing]',
        "mutant.early.caught_by: limits does not run at block a on cpu",
    ),
    (STEP, '"{out}"]', "bench.step.command: does not mention {artifact}"),
    (STEP, '"{artifact}", "{out}"]\npairs = 65', "bench.step.pairs: is not a whole number in range; give 1 to 64"),
    (STEP, '"{artifact}", "{out}"]\npairs = 0', "bench.step.pairs"),
    (
        'path = "data/numbers.txt"',
        'path = "data/../../x"',
        "input.data.path: data/../../x is not a plain relative path",
    ),
    ("[input.data]", "[input]\ndata = 3\n[block.d]", "block.d.path: unknown key"),
    ('[subject]\nname = "small"', '[subject]\nname = "small"\nname = "again"', "is not TOML"),
    ("[subject]", "\ufeff[subject]", "is not TOML"),
]


@pytest.mark.parametrize(("old", "new", "said"), MISTAKES, ids=[said[:60] for _, _, said in MISTAKES])
def test_a_mistake_is_one_line_with_file_key_and_what_to_do(old: str, new: str, said: str) -> None:
    """`ManifestError: small/landing.toml: KEY: what; to do`, exit code 2."""
    with pytest.raises(ManifestError) as caught:
        small((old, new))
    line = str(caught.value)
    assert said in line
    assert line.startswith("ManifestError: small/landing.toml: ")
    assert "\n" not in line
    assert "\0" not in line
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["bb", "../a", "a/b", "a\0b", "-a", "x" * 300, "", "a\nb"])
def test_a_block_a_target_or_a_check_that_does_not_exist_is_a_usage_error(name: str) -> None:
    """Whatever the name holds, the answer is one short printable line."""
    for ask in (small().block, small().target, small().check, small().order):
        with pytest.raises(UsageError) as caught:
            ask(name)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 250


def test_the_nearest_name_is_suggested_or_all_are_listed() -> None:
    """A close name if there is one, else what there is."""
    assert suggest("blok", ["block", "bench"]) == "did you mean block"
    assert suggest("zzz", ["block", "bench"]) == "known: block, bench"
    assert suggest("zzz", []) == "there is none"


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("*.c", "a.c", True),
        ("*.c", "d/a.c", False),
        ("*.c", "a.cu", False),
        ("d/*.cu*", "d/a.cuh", True),
        ("d/*.cu*", "d/e/a.cuh", False),
        ("**/*.c", "a.c", True),
        ("**/*.c", "d/e/a.c", True),
        ("d/**", "d/e/a.c", True),
        ("d/**", "da/e", False),
        ("d/**/x", "d/x", True),
        ("d/**/x", "d/a/b/x", True),
        ("?.c", "ab.c", False),
        ("a.c", "a+c", False),
        ("a+.c", "a+.c", True),
        ("*", ".hidden", True),
        ("*.c", "a.c\n", False),
    ],
)
def test_a_star_stays_in_its_folder_and_two_stars_do_not(glob: str, path: str, expected: bool) -> None:
    """`*` and `?` never cross a slash; `**` stands for any number of folders."""
    assert matches(path, [glob]) is expected


def test_the_teeth_form_has_the_small_shapes_at_its_end() -> None:
    """A later option wins, so the teeth arguments override what stands before them."""
    check = manifest.load(ADDER).check("rows")
    full, teeth = check.commands(teeth=False), check.commands(teeth=True)
    assert [side[: len(plain)] for side, plain in zip(teeth, full, strict=True)] == list(full)
    assert teeth[0][len(full[0]) :] == ("--rows", "2", "--width", "3")


def test_refusals_are_commands_too() -> None:
    """A check of the verb refuses has one command a case."""
    check = manifest.load(ADDER).check("refusals")
    assert check.commands(teeth=False) == tuple(case.argv for case in check.refuses)
    assert len(check.refuses) == 3


def test_a_filled_placeholder_is_not_looked_at_again() -> None:
    """A path that holds braces stays as it is."""
    filled = placeholders.fill(["{python}", "--out={out}/{out}"], {"python": "/bin/{out}", "out": "/tmp/{x}"})
    assert filled == ("/bin/{out}", "--out=/tmp/{x}//tmp/{x}")


def test_a_placeholder_without_a_value_raises() -> None:
    """It never reaches a command as braces."""
    with pytest.raises(ManifestError, match=r"\{baseline\}: means nothing to this command; it may use \{out\}"):
        placeholders.fill(["{baseline}"], {"out": "/tmp"})


def test_one_bound_may_be_a_table_and_several_an_array() -> None:
    """Both forms of `within` end as the same tuple."""
    subject = manifest.load(ADDER)
    assert [bound.bound_ppm for bound in subject.check("oracle").within] == [1]
    assert [bound.files for bound in subject.check("oracle-clip").within] == [("clip.f32",), ("scale.f32",)]


@pytest.mark.parametrize("what", ["missing", "link", "fifo", "folder", "large", "latin-1"])
def test_only_a_plain_file_is_a_manifest(tmp_path: Path, what: str) -> None:
    """Anything else is refused by name, and a FIFO does not make the reader wait."""
    path = tmp_path / "landing.toml"
    if what == "link":
        path.symlink_to(ADDER / "landing.toml")
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "large":
        path.write_bytes(b"#" * (manifest.FILE_BYTES_MAX + 1))
    elif what == "latin-1":
        path.write_bytes(b'[subject]\nname = "\xe9"')
    with pytest.raises(ManifestError, match=r"landing\.toml: "):
        manifest.load(tmp_path)
