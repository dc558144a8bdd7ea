"""Kestrel's sessions. `nox -s land-block` runs the landing protocol; arguments after `--` go to the command."""

import nox

nox.options.sessions = ["tests"]
nox.options.reuse_existing_virtualenvs = True
GROUP = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "landing")


def pipeline(session: nox.Session, *argv: str) -> None:
    session.install("--quiet", *GROUP)
    session.run("python", "-m", "pipeline", *argv, *session.posargs)


@nox.session(name="land-block")
def land_block(session: nox.Session) -> None:
    """Land the next block, or prove that the tree is the landed one."""
    pipeline(session, "land")


@nox.session(name="ab-compare")
def ab_compare(session: nox.Session) -> None:
    """Compare two artifacts: bytes, sizes, timings with an A/A control."""
    pipeline(session, "compare")


@nox.session(name="ledger-audit")
def ledger_audit(session: nox.Session) -> None:
    """Derive everything that the ledger claims again."""
    pipeline(session, "audit")


@nox.session(name="verify-baseline")
def verify_baseline(session: nox.Session) -> None:
    """Fail hard unless ledger, archive, views, a fresh build and the recorded dumps agree."""
    pipeline(session, "verify")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests."""
    session.install("--quiet", *GROUP)
    session.run("python", "-m", "pytest", "-n", "auto", "--dist", "worksteal", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types."""
    session.install("--quiet", *GROUP)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def bench(session: nox.Session) -> None:
    """Print benchmarks of the pipeline and the engine."""
    session.install("--quiet", *GROUP)
    files = ("tests/bench_pipeline.py", "tests/bench_engine.py")
    session.run("python", "-m", "pytest", *files, "--benchmark-only", *session.posargs)


@nox.session
def teeth(session: nox.Session) -> None:
    """Run every check against every mutant and print the matrix."""
    pipeline(session, "teeth")


@nox.session(name="sweep-r")
def sweep_r(session: nox.Session) -> None:
    """Time the q4 product of the tree's CUDA build by every R and M, on a GPU."""
    session.install("--quiet", *GROUP)
    session.run("python", "-m", "kernels", "sweep", *session.posargs)


@nox.session
def tour(session: nox.Session) -> None:
    """Replay the recorded landings in a scratch clone, then plant a fault that is refused."""
    pipeline(session, "tour")
