"""Records to text for a terminal and markdown for a reviewer. Pure; every number in it comes from a record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pipeline import records, timing
from pipeline.claims import Check, Figure, Sizes
from pipeline.records import Attempt, Promote, Record, Result, Void
from pipeline.verdict import Decision

SHORT: Final = 12  # hex digits of a digest in a table
VERDICT_WORDS: Final = {"landed": "LANDED", "refused": "REFUSED", "inconclusive": "INCONCLUSIVE"}


def log(ledger: Sequence[Record], *, target: str | None = None) -> str:
    """One line a record: sequence, kind, target, block, artifact, verdict, growth."""
    rows = [("#", "kind", "target", "block", "artifact", "bytes", "says")]
    for record in ledger:
        if target is None or record.target == target:
            block = record.block if not record.revision else f"{record.block} r{record.revision}"
            short = record.artifact.sha256[:SHORT]
            rows.append(
                (str(record.sequence), records.kind(record), record.target, block, short, _bytes(record), _says(record))
            )
    return _columns(rows) if len(rows) > 1 else "the ledger holds no record"


def show(record: Record, *, markdown: bool = False) -> str:
    """Everything that a record says, as a reviewer reads it."""
    title = f"record {record.sequence}: {records.kind(record)} of {record.block} on {record.target}"
    head = [
        ("artifact", f"{record.artifact.name} {record.artifact.sha256}"),
        ("previous", record.previous),
        ("command", " ".join(record.argv)),
        *((name, value) for name, value in sorted(record.time.items())),
    ]
    parts = [_section(title, _pairs(head), markdown)]
    if isinstance(record, (Attempt, Result)):
        parts.append(_section("source and build", _pairs(_source(record)), markdown))
    if isinstance(record, Result):
        parts += _result(record, markdown)
    elif isinstance(record, Void):
        parts.append(_section("void", f"voids record {record.voids}: {record.why} ({record.who})", markdown))
    elif isinstance(record, Promote):
        parts.append(_section("promote", f"on the ground of result {record.result}", markdown))
    return "\n\n".join(parts)


def decision(made: Decision, *, sizes: Sizes | None = None) -> str:
    """Checks, counterproofs and reasons of a verdict that was just reached."""
    parts = [checks_table(made.checks)]
    if sizes is not None:
        parts.append(sizes_lines(sizes))
    return "\n\n".join([*parts, "\n".join(f"  {reason}" for reason in made.reasons)])


def checks_table(checks: Iterable[Check]) -> str:
    """One line a check: verb, verdict, what was compared, which mutants it caught, where it is red."""
    rows = [("check", "verb", "verdict", "files", "bytes", "caught", "where")]
    for check in checks:
        fatal = [proof for proof in check.counterproofs if proof.outcome in ("caught", "missed", "set-up error")]
        caught = f"{sum(proof.outcome == 'caught' for proof in fatal)} of {len(fatal)}" if fatal else "-"
        verdict = f"green in #{check.green_in}" if check.green_in and check.outputs is None else check.verdict
        files, size = (str(check.outputs.files), f"{check.outputs.bytes:,}") if check.outputs else ("-", "-")
        rows.append((check.id, check.verb, verdict, files, size, caught, check.where or ""))
    return _columns(rows)


def matrix(checks: Sequence[Check], mutants: Sequence[str]) -> str:
    """Checks against mutants: x caught, . not caught, ! not planted, g neutral and green, R neutral and red."""
    signs = {"caught": "x", "missed": ".", "set-up error": "!", "green": "g", "red": "R"}
    seen = {(check.id, proof.mutant): signs[proof.outcome] for check in checks for proof in check.counterproofs}
    rows = [("mutant", *(check.id for check in checks))]
    rows += [(mutant, *(seen.get((check.id, mutant), " ") for check in checks)) for mutant in mutants]
    return _columns(rows)


def sizes_lines(sizes: Sizes) -> str:
    """What grew: the artifact, and every section, kernel and host file whose size is another."""
    lines = [_change("artifact", *sizes.artifact)]
    for kind, table in (("sections", sizes.sections), ("kernels", sizes.kernels), ("host files", sizes.host)):
        changed = {name: row for name, row in sorted(table.items()) if row[0] != row[1]}
        known = [row[1] for row in table.values() if row[1] is not None]
        whole = f"{len(table)}, {sum(known):,} bytes, " if len(changed) < len(table) else ""
        lines.append(f"  {kind}: {whole}{len(changed)} of another size")
        if sizes.artifact[0] is not None:
            lines += [f"  {_change(name, *row)}" for name, row in changed.items()]
    return "\n".join(lines)


def verdict(word: str, *, block: str, target: str, rest: str) -> str:
    """The last line of a walk."""
    return f"{VERDICT_WORDS.get(word, word.upper())}: {block} on {target}: {rest}"


def _result(record: Result, markdown: bool) -> list[str]:
    increment = "\n".join(record.source.increment) or "none: the same commits as the baseline's"
    parts = [
        _section("verdict", "\n".join([VERDICT_WORDS[record.verdict], *record.reasons]), markdown),
        _section("increment", increment, markdown),
        _section("checks", checks_table(record.checks), markdown),
    ]
    if record.inputs:
        rows = [(row.name, row.origin, row.digest) for row in record.inputs]
        parts.append(_section("inputs that several checks read", _columns(rows), markdown))
    proofs = sorted({proof.mutant for check in record.checks for proof in check.counterproofs})
    if proofs:
        parts.append(_section("checks and mutants", matrix(record.checks, proofs), markdown))
    parts.append(_section("sizes", sizes_lines(record.sizes), markdown))
    if record.timing:
        parts.append(_section("timing", "\n".join(timing.sentence(row) for row in record.timing), markdown))
    if record.figures:
        parts.append(
            _section(
                "figures, recorded and not judged",
                _columns(
                    [
                        ("figure", "median", "unit", "n", "lowest", "highest"),
                        *((f.name, f"{f.value:,}", f.unit, str(f.n), *_range(f)) for f in record.figures),
                    ]
                ),
                markdown,
            )
        )
    parts.append(_section("machine", _pairs(sorted({**record.machine, **record.environment}.items())), markdown))
    if record.limits:
        parts.append(_section("limits", "\n".join(record.limits), markdown))
    return parts


def _source(record: Attempt | Result) -> list[tuple[str, str]]:
    source, baseline = record.source, record.baseline
    return [
        ("commit", source.git_commit or "none"),
        ("git tree", source.git_tree or "none"),
        ("sources", source.sources.sha256),
        ("tools", source.tools.sha256),
        *([("source tar", source.archive.sha256)] if source.archive else []),
        ("baseline", f"record {baseline.sequence}, {baseline.sha256}" if baseline else "none: the first landing"),
        *(("build", " ".join(argv)) for argv in record.build.argv),
        ("reproducible", record.build.reproducible),
        *((f"toolchain {tool.name}", f"{tool.version} {tool.digest}") for tool in record.build.toolchain),
        *((f"built for {pin.target}", f"{pin.artifact.name} {pin.artifact.sha256}") for pin in record.builds or ()),
        ("plan", record.plan.sha256),
        *([("evidence", record.evidence.sha256)] if isinstance(record, Result) else []),
        ("rules", f"{record.rules}, pipeline {record.pipeline.sha256}"),
    ]


def _says(record: Record) -> str:
    if isinstance(record, Result):
        return f"{record.verdict}: {record.reasons[0]}" if record.reasons else record.verdict
    if isinstance(record, Void):
        return f"voids #{record.voids}: {record.why}"
    if isinstance(record, Promote):
        return f"on #{record.result}: {record.title}"
    return record.title if isinstance(record, Attempt) else ""


def _bytes(record: Record) -> str:
    if not isinstance(record, Result):
        return ""
    before, after = record.sizes.artifact
    return f"{after:,}" + (f" ({after - before:+,})" if before is not None else "")


def _change(name: str, before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return f"  {name}: {'new' if before is None else 'gone'}, {after if before is None else before:,} bytes"
    return f"  {name}: {before:,} -> {after:,} bytes ({after - before:+,})"


def _section(title: str, body: str, markdown: bool) -> str:
    return (
        f"## {title}\n\n```\n{body}\n```"
        if markdown
        else f"{title}\n" + "\n".join(f"  {line}" for line in body.splitlines())
    )


def _range(figure: Figure) -> tuple[str, str]:
    """The lowest and the highest sample, which rules 1 left to the reader."""
    low, high = (min(figure.samples), max(figure.samples)) if figure.samples else (figure.low, figure.high)
    return ("", "") if low is None or high is None else (f"{low:,}", f"{high:,}")


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    return _columns([*rows])


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
