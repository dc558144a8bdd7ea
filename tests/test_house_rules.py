"""The design's house as a test: lengths, layers, one home for each outside dependency, docstrings, names, tests."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pipeline import errors
from pipeline.__main__ import CODES

TOP = Path(__file__).parent.parent
MODULE_LINES_MAX = 300
FUNCTION_LINES_MAX = 60
LINE_MAX = 120

# Imports of the pipeline go up only: a module imports what stands on lines above its own, or before it on its line.
LAYERS = """
errors shapes canonical
progress signtest elf machine claims subject fields placeholders records proof verbs timing verdict
brief protocol report performance
durable tree layout outputs kit manifest sizes ledger baselines source commands build
house views room cargo workshop prove stage registrar derive
audit land compare teeth verify tour
__main__
"""
PURE = ("errors", "shapes", "canonical", "claims", "records", "signtest", "subject", "placeholders", "fields", "proof")
PURE += ("verbs", "timing", "verdict", "brief", "protocol", "report", "performance")  # rules: values to values
WORLD = ("os", "time", "subprocess", "socket", "shutil", "tempfile", "io", "pathlib", "random", "secrets", "datetime")

# Outside dependency -> the only modules that may import it.
HOMES = {
    "nox": {"noxfile.py"},
    "git": {"pipeline/source.py"},
    "elftools": {"pipeline/sizes.py"},
    "rich": {"pipeline/progress.py"},
    "subprocess": {"pipeline/commands.py", "kernels/compilers.py", "kernels/tools/sanitize.py"},
    "ctypes": {"kernels/engine/cpu.py"},
    "cupy": {"kernels/engine/gpu.py", "kernels/compilers.py", "pipeline/machine.py"},  # runs; compiles; is it here
}
LEAN = ("errors", "canonical", "progress", "prove", "kit", "__main__")  # imported where only NumPy is installed


def _parsed(path: Path) -> ast.Module:
    return _tree(path, path.stat().st_mtime_ns)


@cache
def _tree(path: Path, _: int) -> ast.Module:
    return ast.parse(path.read_text())


def modules(*folders: str) -> list[Path]:
    """Python files of some folders of the repository, and of none that is generated."""
    return sorted(
        path
        for folder in folders
        for path in (TOP / folder).rglob("*.py")
        if "__pycache__" not in path.parts and not any(part.startswith(".") for part in path.relative_to(TOP).parts)
    )


def name(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


def imported(path: Path, *, lazily: bool = True) -> Iterator[str]:
    """What a file imports, in full; relative imports of the engine as `.name`."""
    tree = _parsed(path)
    nodes = ast.walk(tree) if lazily else iter(tree.body)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            head = "." * node.level + (node.module or "")
            yield head
            yield from (f"{head.rstrip('.')}.{alias.name}" for alias in node.names)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (n for n in ast.walk(_parsed(path)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))


OURS = modules("pipeline", "kernels")
TESTS = [path for path in modules("tests") if "subjects" not in path.parts]


@pytest.mark.parametrize("path", [*OURS, TOP / "noxfile.py"], ids=name)
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    """At most 300 lines, functions of at most 60, and a docstring that ends a sentence."""
    assert len(path.read_text().splitlines()) <= MODULE_LINES_MAX
    long = [f"{f.name}: {f.end_lineno - f.lineno + 1}" for f in functions(path) if f.end_lineno]
    assert not [row for row in long if int(row.rpartition(" ")[2]) > FUNCTION_LINES_MAX]
    said = ast.get_docstring(_parsed(path))
    assert said, "a module without a docstring"
    assert said.split("\n\n")[0].endswith((".", ":"))


@pytest.mark.parametrize("path", OURS, ids=name)
def test_every_public_function_and_class_has_a_docstring(path: Path) -> None:
    """And in the pipeline every public method of one; a program's `main` is described by its module."""
    bare = []

    def look(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not child.name.startswith(
                "_"
            ):
                if not ast.get_docstring(child) and child.name != "main":
                    bare.append(f"{inside}{child.name}")
                if isinstance(child, ast.ClassDef) and path.parent.name == "pipeline":
                    look(child, f"{child.name}.")

    look(_parsed(path), "")
    assert not bare


@pytest.mark.parametrize("path", [*OURS, *TESTS, TOP / "noxfile.py"], ids=name)
def test_nothing_is_called_utils(path: Path) -> None:
    """A helper that fits nowhere belongs to the module that calls it; and no file keeps dead code or a diary."""
    words = set(re.split(r"[._/]", name(path)))
    assert not words & {"utils", "util", "helpers", "helper", "common", "misc", "junk"}
    text = path.read_text()
    assert not re.search(r"^\s*#\s*(def |class |import |from \w+ import |return |print\()", text, re.MULTILINE)
    assert not re.search(r"#\s*(TODO(?!: when|: once)|FIXME|XXX|HACK)", text)
    assert not re.search(r"^# ?[-=*#]{8,}", text, re.MULTILINE), "a banner"


def test_the_two_halves_never_import_each_other() -> None:
    """The seam is landing.toml; the artifact's engine imports itself alone, NumPy, CuPy and the standard library."""
    for path in modules("pipeline"):
        assert not [one for one in imported(path) if one.partition(".")[0] in ("kernels", "tests")], name(path)
    for path in modules("kernels"):
        assert not [one for one in imported(path) if one.partition(".")[0] in ("pipeline", "tests")], name(path)
    for path in modules("kernels/engine"):
        heads = {one.partition(".")[0] for one in imported(path) if not one.startswith(".")}
        assert heads <= {"numpy", "cupy", "kernels"} | sys.stdlib_module_names, name(path)


def _own(path: Path, *, lazily: bool = True) -> set[str]:
    """The modules of the pipeline that a file imports."""
    known = {one.stem for one in modules("pipeline")}
    parts = [one.split(".") for one in imported(path, lazily=lazily)]
    return {part[1] for part in parts if part[0] == "pipeline" and len(part) > 1 and part[1] in known} - {"__init__"}


def test_imports_go_one_way() -> None:
    """Errors, pure modules, stores, then what uses them, then __main__; every module has its place in the table."""
    layers = [line.split() for line in LAYERS.split("\n") if line]
    place = {word: i for i, layer in enumerate(layers) for word in layer}
    assert sorted(place) == sorted(path.stem for path in modules("pipeline") if path.stem != "__init__")
    wrong = [
        f"{path.stem} imports {one}"
        for path in modules("pipeline")
        if path.stem != "__init__"
        for one in _own(path)
        if place[one] > place[path.stem]
    ]
    assert not wrong
    graph = {path.stem: _own(path) for path in modules("pipeline") if path.stem != "__init__"}
    while free := {word for word, needs in graph.items() if not needs & set(graph)}:
        graph = {word: needs for word, needs in graph.items() if word not in free}
    assert not graph, "a circle of imports"


def test_pure_modules_see_no_file_clock_or_process() -> None:
    """Not by themselves and not through what they import."""
    paths = {path.stem: path for path in modules("pipeline")}
    for word in PURE:
        assert _own(paths[word]) <= set(PURE), word
        heads = {one.partition(".")[0] for one in imported(paths[word])}
        assert not heads & set(WORLD), word


def test_each_outside_dependency_has_one_home() -> None:
    """So that one file changes when it does."""
    found: dict[str, set[str]] = {dependency: set() for dependency in HOMES}
    for path in [*OURS, TOP / "noxfile.py"]:
        for one in imported(path):
            if one.partition(".")[0] in HOMES:
                found[one.partition(".")[0]].add(name(path))
    for dependency, homes in HOMES.items():
        assert found[dependency] <= homes, f"{dependency}: {found[dependency] - homes}"
    assert all(found[one] for one in ("nox", "git", "elftools", "rich", "subprocess", "ctypes"))


def test_every_outside_dependency_is_declared() -> None:
    """What is neither standard nor ours stands in the dependency group, and heavy ones are imported in functions."""
    declared = (TOP / "pyproject.toml").read_text().lower()
    known = {"git": "gitpython", "elftools": "pyelftools", "cupy": "cupy-cuda13x", "cuda": "nvidia-cuda-nvrtc"}
    optional = {"transformers", "torch", "safetensors"}  # of the script that makes the fixture
    for path in OURS:
        for one in imported(path):
            head = one.partition(".")[0]
            if head and head not in sys.stdlib_module_names | {"pipeline", "kernels"} | optional:
                assert f'"{known.get(head, head)}' in declared, f"{name(path)} imports {head}"
    for path in modules("pipeline"):
        heads = {one.partition(".")[0] for one in imported(path, lazily=False)}
        assert heads <= sys.stdlib_module_names | {"pipeline"}, f"{name(path)} is slow to import"


def test_sessions_are_verbs_with_one_line_each() -> None:
    """The noxfile imports nox alone; each session's docstring is what `nox -l` shows."""
    assert set(imported(TOP / "noxfile.py")) == {"nox"}
    sessions = [f for f in functions(TOP / "noxfile.py") if f.decorator_list]
    wanted = {"land_block", "ab_compare", "ledger_audit", "verify_baseline", "tests", "lint", "bench", "teeth", "tour"}
    assert wanted <= {session.name for session in sessions}
    for session in sessions:
        said = ast.get_docstring(session) or ""
        assert len(said.splitlines()) == 1 and said.endswith("."), session.name


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_a_test_states_its_fact_and_asserts_it(path: Path) -> None:
    """Every test has a docstring, and something in it can fail; every file of tests says what it is about."""
    assert (ast.get_docstring(_parsed(path)) or "").strip(), "no docstring"
    for function in functions(path):
        if function.name.startswith(("test_", "bench_")):
            assert ast.get_docstring(function), f"{function.name} states no fact"
            checks = [n for n in ast.walk(function) if isinstance(n, ast.Assert) or _raises(n) or _asserts(n)]
            assert checks, f"{function.name} asserts nothing"


def _raises(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("raises", "warns")


def _asserts(node: ast.AST) -> bool:
    """A call of a function of the tests that asserts for several of them: its name says so."""
    called = node.func if isinstance(node, ast.Call) else None
    word = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    return word.startswith(("assert_", "is_", "must_", "check_")) or word in ("land", "same")


def test_every_error_has_its_exit_code_and_the_table_says_what_each_means() -> None:
    """Two to seven; zero and one are verdicts; every code stands in the command line's help, and in the README."""
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.LandingError)]
    codes = {one.exit_code for one in classes}
    assert codes == {2, 3, 4, 5, 6, 7}
    assert all(ast.get_docstring(n) for n in _parsed(TOP / "pipeline/errors.py").body if isinstance(n, ast.ClassDef))
    assert all(re.search(rf"\b{code} [a-z]", CODES) for code in {0, 1, *codes})
    readme = TOP / "README.md"
    text = readme.read_text() if readme.exists() else CODES
    assert [code for code in range(8) if not re.search(rf"\b{code}\b", text)] == []


def test_no_text_of_the_repository_names_a_machine() -> None:
    """No path of a home, no folder of a person or a workplace, no host of a package registry."""
    files = [*OURS, *TESTS, TOP / "noxfile.py", TOP / "pyproject.toml", *(TOP / ".github").rglob("*.yml")]
    known = re.compile(
        r"/(?:home|Users)/(?!alice\b)\w+|/root/|/tmp/(?!build-x|x\b)\w|/work/|pypi\.org|files\.pythonhosted"
    )
    own = Path(__file__).name
    found = {name(path): known.findall(path.read_text()) for path in files if path.name != own}
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.parametrize("argv", [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)], ids=str)
def test_style_and_types(argv: tuple[str, ...]) -> None:
    """What the lint session runs, with what the sessions install."""
    done = subprocess.run([sys.executable, "-m", *argv], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
