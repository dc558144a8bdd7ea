"""`python -m pipeline VERB`: a command line to one call to an exit code. The only place that catches errors."""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, NoReturn

from pipeline.errors import LandingError, MachineError, UsageError, Waiting

Arguments = argparse.Namespace
DIGITS_MAX: Final = 9  # of a number on the command line
GARBAGE_MIN: Final = 100_000  # new objects before they are looked through: a ledger is many, and all of it is kept
CODES: Final = """exit codes: 0 landed or sound, 1 refused or different, 2 usage, 3 integrity, 4 environment,
5 inconclusive, 6 busy, 7 waiting for evidence or interrupted"""


def main(argv: list[str] | None = None) -> int:
    """Runs one verb and returns its exit code; prints one line for every error, and never a traceback."""
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal has no letter for ends no walk
    try:
        arguments = _parser().parse_args(argv)
        code: int = arguments.call(arguments)
        sys.stdout.flush()
        return code
    except LandingError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _complain(str(Waiting("interrupted", "what was done is kept", "run the same command again")))
        return Waiting.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Waiting.exit_code
    except OSError as error:
        _complain(
            str(MachineError(error.filename or "disk", error.strerror or str(error), "see to room and permissions"))
        )
        return MachineError.exit_code
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        _complain(
            f"Fault: {where}: {type(error).__name__}: {error}; a fault of the pipeline itself: please report this line"
        )
        return MachineError.exit_code


def _land(arguments: Arguments) -> int:
    from pipeline import land, records
    from pipeline.stage import Ask

    names = ("block", "target", "at", "dry_run", "kit", "evidence", "resume", "revert", "toolchain", "check")
    ended = land.land(_house(arguments), Ask(**{name: getattr(arguments, name) for name in names}), _say(arguments))
    if arguments.json and ended.record is not None:
        sys.stdout.write(records.to_bytes(ended.record).decode())
    elif arguments.json:
        _print_json({"verdict": ended.last, "reasons": ended.decision.reasons if ended.decision else ()})
    else:
        print(ended.last)
    return ended.code


def _compare(arguments: Arguments) -> int:
    from pipeline import compare

    code, last = compare.compare(_house(arguments), arguments.a, arguments.b, arguments.target, _say(arguments))
    return _end(arguments, code, last)


def _audit(arguments: Arguments) -> int:
    from pipeline import audit, ledger

    house = _house(arguments)
    writable = os.access(house.root, os.W_OK)  # where it is not, nothing can land meanwhile
    with ledger.lock(house.root, "audit") if writable else nullcontext():
        book = audit.audit(house, _say(arguments), deep=arguments.deep, base=arguments.base, strict=arguments.strict)
    return _end(arguments, 0, f"SOUND: {len(book)} records and everything that they name")


def _verify(arguments: Arguments) -> int:
    from pipeline import verify

    return _end(arguments, 0, verify.verify(_house(arguments), _say(arguments)))


def _prove(arguments: Arguments) -> int:
    from pipeline import prove

    found = prove.prove(arguments.kit, arguments.out, seconds=arguments.seconds)
    return _end(
        arguments, 0, f"PROVED: {len(found)} plans answered in {arguments.out.name}; carry it back to `land --evidence`"
    )


def _teeth(arguments: Arguments) -> int:
    from pipeline import teeth

    return _end(arguments, *teeth.teeth(_house(arguments), arguments.target, arguments.mutants, _say(arguments)))


def _tour(arguments: Arguments) -> int:
    from pipeline import tour

    return _end(arguments, *tour.tour(_house(arguments), arguments.target, _say(arguments)))


def _log(arguments: Arguments) -> int:
    from pipeline import records, report

    book = _house(arguments).ledger.read()
    if arguments.json:
        for record in book:
            if arguments.target in (None, record.target):
                sys.stdout.write(records.to_bytes(record).decode())
    else:
        print(report.log(book, target=arguments.target))
    return 0


def _show(arguments: Arguments) -> int:
    from pipeline import records, report

    house = _house(arguments)
    book = house.ledger.read()
    if not 0 < arguments.sequence <= len(book):
        raise UsageError(f"show {arguments.sequence}", f"the ledger has {len(book)} records", "name one of them")
    record = book[arguments.sequence - 1]
    if arguments.performance:
        print(_performance(house, record))
    elif arguments.json:
        sys.stdout.write(records.to_bytes(record).decode())
    else:
        print(report.show(record, markdown=arguments.markdown))
    return 0


def _performance(house: Any, record: Any) -> str:
    """Raises UsageError for a record that has no figure for a table."""
    from pipeline import derive, performance, records

    text = performance.section(record, derive.read_plan(house, record)) if isinstance(record, records.Result) else ""
    if not text:
        raise UsageError(f"show {record.sequence}", "no figure of it has a place in a table", "leave --performance out")
    return text


def _restore(arguments: Arguments) -> int:
    from pipeline import views

    return _end(arguments, 0, views.restore(_house(arguments), _say(arguments)))


def _void(arguments: Arguments) -> int:
    from pipeline import registrar

    return _end(
        arguments, 0, registrar.void_by_hand(_house(arguments), arguments.sequence, arguments.why, _say(arguments))
    )


def _house(arguments: Arguments) -> Any:
    from pipeline import house

    return house.find(arguments.subject, arguments.root)


def _say(arguments: Arguments) -> Callable[[str], None]:
    """Where the lines of a walk go: with --json standard output is for the record alone."""
    out = sys.stderr if arguments.json else sys.stdout
    return lambda line: print(line, file=out, flush=True)


def _end(arguments: Arguments, code: int, last: str) -> int:
    if arguments.json:
        _print_json({"verdict": last, "exitCode": code})
    else:
        print(last)
    return code


def _print_json(value: Any) -> None:
    print(json.dumps(value, sort_keys=True))


def _complain(line: str) -> None:
    sys.stdout.flush()
    print(line, file=sys.stderr, flush=True)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        raise argparse.ArgumentTypeError(f"{text:.20} is no whole number of at most {DIGITS_MAX} digits")
    return int(text)


class _Parser(argparse.ArgumentParser):
    """Usage errors in the one form that every error has. An option has one spelling."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(self.prog, message, "see --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m pipeline", description="The landing protocol.", epilog=CODES)
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB", parser_class=_Parser)
    for name, call, text, rows in _VERBS:
        verb = verbs.add_parser(name, help=text, description=text, epilog=CODES)
        for flags, keywords in (*rows, *_COMMON):
            verb.add_argument(*flags, **keywords)
        verb.set_defaults(call=call)
    return parser


Row = tuple[tuple[str, ...], dict[str, Any]]
_SWITCH: Final[dict[str, Any]] = {"action": "store_true"}
_TARGET: Final[Row] = (("--target",), {"help": "the manifest's first one is the default"})
_COMMON: Final[tuple[Row, ...]] = (
    (("--subject",), {"default": "kernels", "metavar": "DIR", "help": "the folder that holds landing.toml"}),
    (("--root",), {"metavar": "DIR", "help": "where ledger/ and baselines/ are; the repository's top is the default"}),
    (("--json",), _SWITCH | {"help": "print the record, or the verdict, as JSON"}),
)
_VERBS: Final[tuple[tuple[str, Callable[[Arguments], int], str, tuple[Row, ...]], ...]] = (
    ("land", _land, "land the next block, or prove that the tree is the landed one", (
        (("block",), {"nargs": "?", "metavar": "BLOCK", "help": "the next block that is not landed is the default"}),
        _TARGET,
        (("--at",), {"metavar": "REV", "help": "land the subject as it is at a commit"}),
        (("--dry-run",), _SWITCH | {"help": "everything but the records; exit 0 if it would land"}),
        (("--kit",), {"type": Path, "metavar": "DIR", "help": "write the kit here, to be proved elsewhere"}),
        (("--evidence",), {"type": Path, "metavar": "FILE", "help": "go on with what `prove` wrote there"}),
        (("--resume",), {"type": _whole, "metavar": "SEQ", "help": "go on with an attempt"}),
        (("--revert",), {"type": _whole, "metavar": "SEQ", "help": "land what an earlier promote record promoted"}),
        (("--toolchain",), _SWITCH | {"help": "land a move of the toolchain alone"}),
        (("--check",), {"metavar": "ID", "help": "a dry run of one check and its mutants"}),
    )),
    ("compare", _compare, "compare two artifacts: bytes, sizes, timings", (
        (("a",), {"nargs": "?", "default": "current", "metavar": "A", "help": "current, previous, work, #N, a file"}),
        (("b",), {"nargs": "?", "default": "work", "metavar": "B"}),
        _TARGET,
    )),
    ("audit", _audit, "derive everything that the ledger claims again", (
        (("--deep",), _SWITCH | {"help": "rebuild every landed artifact from its archived source"}),
        (("--base",), {"metavar": "REV", "help": "the ledger must extend the one of this commit"}),
        (("--strict",), _SWITCH | {"help": "with --deep: another toolchain than the recorded one is an error"}),
    )),
    ("verify", _verify, "fail unless ledger, archive, views, a fresh build and the recorded dumps agree", ()),
    ("prove", _prove, "run a kit and write its evidence", (
        (("kit",), {"type": Path, "metavar": "KIT"}),
        (("--out",), {"type": Path, "required": True, "metavar": "FILE"}),
        (("--seconds",), {"type": _whole, "metavar": "N", "help": "stop cleanly after N seconds, to go on later"}),
    )),
    ("log", _log, "one line a record", (_TARGET,)),
    ("show", _show, "everything that a record says", (
        (("sequence",), {"type": _whole, "metavar": "SEQ"}),
        (("--markdown",), _SWITCH),
        (("--performance",), _SWITCH | {"help": "the figures that have a place in a table, as a README has them"}),
    )),
    ("restore", _restore, "make current and previous again from the archive", ()),
    ("teeth", _teeth, "every check against every mutant", (
        (("mutants",), {"nargs": "*", "metavar": "MUTANT", "help": "all without any"}),
        _TARGET,
    )),
    ("tour", _tour, "replay the landings in a scratch repository, then plant a fault", (_TARGET,)),
    ("void", _void, "close an attempt, or correct a record, by hand", (
        (("sequence",), {"type": _whole, "metavar": "SEQ"}),
        (("--why",), {"required": True, "metavar": "TEXT"}),
    )),
)  # fmt: skip


if __name__ == "__main__":
    gc.set_threshold(GARBAGE_MIN)
    sys.exit(main())
