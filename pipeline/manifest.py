"""landing.toml to a frozen Subject. The only module that knows its keys; every mistake is named with its key."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipeline import durable, fields, placeholders
from pipeline.fields import NEEDED, Keys, Place
from pipeline.proof import ROLES
from pipeline.subject import (
    Bench,
    Block,
    Bound,
    Check,
    Figure,
    Input,
    Mutant,
    Refusal,
    Subject,
    Target,
    matches,
    shown,
    suggest,
)

__all__ = [
    "Bench", "Block", "Bound", "Check", "Figure", "Input", "Mutant", "Refusal", "Subject", "Target",
    "load", "matches", "parse", "suggest",
]  # fmt: skip

MANIFEST: Final = "landing.toml"
FILE_BYTES_MAX: Final = 1 << 20
PPM: Final = 1_000_000
PAIRS_MIN, PAIRS_MAX, PAIRS = 1, 64, 13  # 13: level .046, power .98 at +1 % for noise of .5 %; test_signtest recomputes
LIMIT_S, LIMIT_S_MAX = 600, 24 * 3600  # seconds

# verb -> the table that it alone has, the fewest and most sides
VERBS: Final[Mapping[str, tuple[str | None, int, int]]] = {
    "same":    (None,      2, 16),
    "differs": ("differs", 2, 2),
    "refuses": ("refuses", 0, 0),
    "within":  ("within",  2, 2),
    "clean":   ("clean",   1, 16),
}  # fmt: skip

_texts, _names, _globs = fields.several(fields.text), fields.several(fields.name), fields.several(fields.glob)
_LIVES: Final[dict[str, tuple[fields.Reader, Any]]] = {"since": (fields.text, None), "targets": (_names, ())}
_SUBJECT: Final[Keys] = {
    "name": (fields.name, NEEDED),
    "sources": (_globs, NEEDED),
    "tools": (_globs, NEEDED),
    "alpha_ppm": (fields.whole(1, PPM // 2), 50_000),
    "refusal_code": (fields.whole(1, 255), 5),
}
_TARGET: Final[Keys] = {
    "artifact": (fields.file_name, NEEDED),
    "build": (fields.argv, NEEDED),
    "needs": (fields.name, None),
    "margin_ppm": (fields.whole(0, PPM), 30_000),
    "reproducible": (fields.choice("bytes", "payload", "no"), "bytes"),
    "toolchain": (_texts, ()),
    "sources": (_globs, ()),
    "proved": (fields.flag, True),
}
_BLOCK: Final[Keys] = {
    "title": (fields.text, NEEDED),
    "limits": (_texts, ()),
    "changes": (_texts, ()),
    "gate": (fields.choice("regression", "improvement"), "regression"),
    "faster_on": (_names, ()),
    "targets": (_names, ()),
}
_CHECK: Final[Keys] = _LIVES | {
    "verb": (fields.choice(*VERBS), NEEDED),
    "sides": (fields.sides, ()),
    "until": (fields.text, None),
    "teeth": (fields.argv, ()),
    "env": (fields.env, ()),
    "limit_s": (fields.whole(1, LIMIT_S_MAX), LIMIT_S),
    "when": (_globs, ()),
    "refuses": (fields.anything, None),
    "within": (fields.anything, None),
    "differs": (fields.anything, None),
    "clean": (fields.anything, None),
}
_REFUSAL: Final[Keys] = {
    "argv": (fields.argv, NEEDED),
    "code": (fields.whole(1, 255), None),
    "word": (fields.text, NEEDED),
    "state": (fields.flag, False),
}
_BOUND: Final[Keys] = {
    "files": (_globs, NEEDED),
    "dtype": (fields.choice("f32", "f64"), NEEDED),
    "bound_ppm": (fields.whole(0, PPM), NEEDED),
    "reason": (fields.text, NEEDED),
}
_DIFFERS: Final[Keys] = {"files": (_globs, NEEDED)}
_CLEAN: Final[Keys] = {"absent": (fields.text, NEEDED)}
_MUTANT: Final[Keys] = _LIVES | {
    "file": (fields.path, NEEDED),
    "find": (fields.text, NEEDED),
    "replace": (fields.replacement, NEEDED),
    "until": (fields.text, None),
    "caught_by": (_names, ()),
    "neutral": (fields.flag, False),
    "only": (fields.flag, False),
}
_BENCH: Final[Keys] = _LIVES | {
    "command": (fields.argv, NEEDED),
    "pairs": (fields.whole(PAIRS_MIN, PAIRS_MAX), PAIRS),
    "cases": (_texts, ()),
}
_FIGURE: Final[Keys] = _LIVES | {"command": (fields.argv, NEEDED)}
_INPUT: Final[Keys] = {"path": (fields.path, NEEDED), "origin": (fields.text, NEEDED)}
_TABLES: Final = ("subject", "target", "block", "check", "mutant", "bench", "figure", "input")


def load(folder: Path) -> Subject:
    """The subject whose landing.toml lies in a folder. Raises ManifestError."""
    name = folder.resolve().name
    place = Place(f"{name}/{MANIFEST}")
    try:
        return parse(durable.read(folder / MANIFEST, FILE_BYTES_MAX), folder=name)
    except FileNotFoundError:
        raise place.wrong("is not there", "name the subject's folder with --subject") from None
    except ValueError as error:
        raise place.wrong(str(error), "put the manifest itself there") from None


@functools.lru_cache(maxsize=16)  # an audit reads the same manifest for many records
def parse(data: bytes, *, folder: str) -> Subject:
    """The subject that the bytes of a landing.toml describe. Raises ManifestError."""
    top = Place(f"{folder}/{MANIFEST}")
    if len(data) > FILE_BYTES_MAX:
        raise top.wrong(f"is larger than {FILE_BYTES_MAX} bytes", "move data out of the manifest")
    try:
        tables = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise top.wrong(f"is not TOML ({error})", "correct that place") from None
    fields.known(top, tables, _TABLES)
    head = fields.row(top.at("subject"), tables.get("subject"), _SUBJECT)
    if not matches(MANIFEST, head["tools"]):
        head["tools"] += (MANIFEST,)  # what says how something is judged is a tool, declared or not
    names = {noun: tuple(fields.table(top.at(noun), tables.get(noun, {}))) for noun in _TABLES[1:]}
    for noun in ("target", "block"):
        if not names[noun]:
            raise top.at(noun).wrong("there is none", f"add a table [{noun}.NAME]")
    rows = _Rows(top, tables, names, head["refusal_code"])
    subject = Subject(
        folder=folder,
        **head,
        targets=tuple(Target(name, **row) for _, name, row in rows.read("target", _TARGET)),
        blocks=tuple(_block(place, name, row, rows) for place, name, row in rows.read("block", _BLOCK)),
        checks=tuple(_check(place, name, row, rows) for place, name, row in rows.read("check", _CHECK)),
        mutants=tuple(_mutant(place, name, row, rows) for place, name, row in rows.read("mutant", _MUTANT)),
        benches=tuple(Bench(name, **rows.alive(place, row)) for place, name, row in rows.read("bench", _BENCH)),
        figures=tuple(Figure(name, **rows.alive(place, row)) for place, name, row in rows.read("figure", _FIGURE)),
        inputs=tuple(Input(name, **row) for _, name, row in rows.read("input", _INPUT)),
    )
    _commands(top, subject, names)
    _bitten(top, subject)
    return subject


@dataclass(frozen=True, slots=True)
class _Rows:
    """The tables of a manifest and the names that its rows may refer to."""

    top: Place
    tables: Mapping[str, Any]
    names: Mapping[str, tuple[str, ...]]
    refusal_code: int

    def read(self, noun: str, keys: Keys) -> Iterable[tuple[Place, str, dict[str, Any]]]:
        for name in self.names[noun]:
            place = self.top.at(noun).at(name)
            yield place, fields.name(place, name), fields.row(place, self.tables[noun][name], keys)

    def alive(self, place: Place, row: dict[str, Any]) -> dict[str, Any]:
        """A row with its `since`, `until` and `targets` filled in and known."""
        blocks = self.names["block"]
        since, until = row["since"] or blocks[0], row.get("until")
        self.refer(place.at("since"), "block", (since,))
        if until is not None:
            self.refer(place.at("until"), "block", (until,))
            if blocks.index(until) <= blocks.index(since):
                raise place.at("until").wrong(f"{until} does not come after {since}", "name a later block")
        return row | {"since": since, "targets": self.targets(place.at("targets"), row["targets"])}

    def targets(self, place: Place, chosen: tuple[str, ...]) -> tuple[str, ...]:
        self.refer(place, "target", chosen)
        return chosen or self.names["target"]

    def refer(self, place: Place, noun: str, chosen: Iterable[str]) -> None:
        for name in chosen:
            if name not in self.names[noun]:
                raise place.wrong(f"{shown(name)}: there is no such {noun}", suggest(name, self.names[noun]))


def _block(place: Place, name: str, row: dict[str, Any], rows: _Rows) -> Block:
    targets = rows.targets(place.at("targets"), row["targets"])
    faster = place.at("faster_on")
    rows.refer(faster, "target", row["faster_on"])
    if (row["gate"] == "improvement") != bool(row["faster_on"]):
        raise faster.wrong('goes with gate = "improvement"', "give both or neither")
    if not set(row["faster_on"]) <= set(targets):
        raise faster.wrong("names a target on which the block does not land", "add it to targets")
    return Block(name, **row | {"targets": targets})


def _check(place: Place, name: str, row: dict[str, Any], rows: _Rows) -> Check:
    row = rows.alive(place, row)
    own, low, high = VERBS[row["verb"]]
    tables = {table: row.pop(table) for table in ("refuses", "within", "differs", "clean")}
    for table, value in tables.items():
        if value is None and table == own:
            raise place.at(table).wrong("is missing", f"add [{place.key}.{table}]")
        if value is not None and table != own:
            raise place.at(table).wrong(f"does not belong to the verb {row['verb']}", "remove it")
    if not low <= len(row["sides"]) <= high:
        wanted = str(low) if low == high else f"{low} to {high}"
        raise place.at("sides").wrong(f"{len(row['sides'])} sides", f"the verb {row['verb']} takes {wanted}")
    cases = fields.rows(place.at("refuses"), tables["refuses"], _REFUSAL)
    bounds = fields.rows(place.at("within"), tables["within"], _BOUND)
    return Check(
        name,
        **row,
        refuses=tuple(Refusal(**case | {"code": case["code"] or rows.refusal_code}) for case in cases),
        within=tuple(Bound(**bound) for bound in bounds),
        differs=fields.row(place.at("differs"), tables["differs"], _DIFFERS)["files"] if own == "differs" else (),
        absent=fields.row(place.at("clean"), tables["clean"], _CLEAN)["absent"] if own == "clean" else None,
    )


def _mutant(place: Place, name: str, row: dict[str, Any], rows: _Rows) -> Mutant:
    row = rows.alive(place, row)
    rows.refer(place.at("caught_by"), "check", row["caught_by"])
    if name in ROLES:
        raise place.wrong("is the word for an artifact that is no mutant", "give it another name")
    if row["neutral"] == bool(row["caught_by"]):
        what = "is both neutral and caught" if row["neutral"] else "is neither caught nor neutral"
        raise place.at("caught_by").wrong(what, "name the checks that must catch it, or say neutral = true")
    if row["neutral"] and row["only"]:
        raise place.at("only").wrong("a neutral mutant is caught by none", "remove it")
    if row["find"] == row["replace"]:
        raise place.at("replace").wrong("equals find", "plant a fault")
    return Mutant(name, **row)


def _commands(top: Place, subject: Subject, names: Mapping[str, tuple[str, ...]]) -> None:
    """Every placeholder means something where it stands, and what must be there is there."""
    for target in subject.targets:
        place = top.at("target").at(target.name).at("build")
        placeholders.check(place, target.build, placeholders.BUILD, ("out",), names)
        if not target.proved and target.reproducible != "bytes":
            place = top.at("target").at(target.name).at("reproducible")
            raise place.wrong("is not bytes, and only a digest is kept of the artifact", "make its build repeatable")
    for check in subject.checks:
        place = top.at("check").at(check.id)
        for i, side in enumerate(check.sides):
            wanted = () if check.verb == "clean" else ("out",)
            placeholders.check(place.at("sides").at(str(i)), side + check.teeth, placeholders.CHECK, wanted, names)
        for case in check.refuses:
            wanted = ("out",) if case.state else ()
            placeholders.check(place.at("refuses"), case.argv + check.teeth, placeholders.CHECK, wanted, names)
    for bench in subject.benches:
        place = top.at("bench").at(bench.name).at("command")
        placeholders.check(place, bench.command, placeholders.BENCH, ("artifact", "out"), names)
    for figure in subject.figures:
        place = top.at("figure").at(figure.name).at("command")
        placeholders.check(place, figure.command, placeholders.FIGURE, ("out",), names)


def _bitten(top: Place, subject: Subject) -> None:
    """At every landing each check has a mutant that it must catch, and each mutant a check that must catch it."""
    for mutant in subject.mutants:
        places = [subject.sources, subject.tools, *(target.sources for target in subject.targets)]
        if not any(matches(mutant.file, globs) for globs in places):
            what = f"{mutant.file} is no source and no tool"
            raise top.at("mutant").at(mutant.name).at("file").wrong(what, "name a file that sources or tools match")
    if subject.checks and not any(mutant.neutral for mutant in subject.mutants):
        raise top.at("mutant").wrong("none is neutral", "add one that changes the artifact's bytes and no result")
    for target in subject.targets:
        for block in subject.blocks_of(target.name):
            here = f"at block {block.name} on {target.name}"
            running = {check.id for check in subject.checks_at(target.name, block.name)}
            planted = [m for m in subject.mutants_at(target.name, block.name) if not m.neutral]
            for check in sorted(running - {name for mutant in planted for name in mutant.caught_by}):
                raise top.at("check").at(check).wrong(f"has no mutant to catch {here}", "add one with caught_by")
            for mutant in planted:
                if not running & set(mutant.caught_by):
                    what = f"{', '.join(mutant.caught_by)} does not run {here}"
                    place = top.at("mutant").at(mutant.name).at("caught_by")
                    raise place.wrong(what, "correct since, until or targets")
