"""records.py: four kinds of record, each with one spelling, and none that claims what cannot be believed."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from pipeline import canonical, claims, records
from pipeline.claims import without_folders
from tests import drawn

KINDS: dict[str, Callable[..., Any]] = {
    "attempt": drawn.attempt,
    "result": drawn.result,
    "promote": drawn.promote,
    "void": drawn.void,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_comes_back_from_its_bytes(kind: str) -> None:
    """Every kind, with a value in every field and with as few as it may have."""
    record = KINDS[kind](sequence=9, previous="d" * 64)
    assert records.kind(record) == kind
    assert records.from_bytes(records.to_bytes(record)) == record
    least = {f.name: None for f in dataclasses.fields(record) if f.default is None}
    bare = dataclasses.replace(record, **least)
    assert records.from_bytes(records.to_bytes(bare)) == bare


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_an_in_toto_statement(kind: str) -> None:
    """The subject says what by digest, the predicate type how to read it; keys are lowerCamelCase and sorted."""
    data = records.to_bytes(KINDS[kind](sequence=9))
    statement = json.loads(data)
    assert sorted(statement) == ["_type", "predicate", "predicateType", "subject"]
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == f"urn:kestrel:landing:{kind}:v1"
    assert statement["subject"] == [{"name": "adder.so", "digest": {"sha256": drawn.AFTER}}]
    assert statement["predicate"]["sequence"] == 9
    assert {"target", "block"} <= set(statement["predicate"])
    assert not re.findall(rb'"[a-zA-Z]+_[a-z]+":', data.replace(b'"_type"', b"").replace(b"OMP_NUM_THREADS", b""))
    assert data == canonical.dumps(statement)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: drawn.proved(argv=()), "check twice has no command line"),
        (lambda: drawn.proved(argv=(drawn.DUMP, ())), "check twice has no command line"),
        (lambda: drawn.proved(inputs=()), "check twice names no input"),
        (lambda: claims.Input(name="x", origin="", digest="0" * 64), "the input 'x' has no origin"),
        (lambda: claims.Input(name="", origin="seed 1", digest="0" * 64), "the input '' has no origin"),
        (lambda: claims.Input(name="x", origin="seed 1", digest="0" * 63), "the input 'x' has no digest"),
        (lambda: claims.Digest(sha256="A" * 64), "a digest is 64 lower-case hex digits"),
        (lambda: claims.Artifact(name="adder.so", sha256=""), "an artifact has a digest"),
        (lambda: drawn.result(verdict="passed"), "'passed' is no verdict"),
        (lambda: drawn.result(verdict="void"), "'void' is no verdict"),
        (lambda: drawn.result(checks=()), "a result without a check proves nothing"),
        (lambda: drawn.void(who=" "), "a void says who and why"),
        (lambda: drawn.void(why=""), "a void says who and why"),
        (lambda: drawn.promote(target="../cpu"), "target is not a name"),
        (lambda: drawn.promote(target="cpu\n"), "target is not a name"),
        (lambda: drawn.promote(block="-d"), "block is not a name"),
        (lambda: drawn.promote(block="d" * 65), "block is not a name"),
        (lambda: drawn.promote(sequence=-1), "sequence is negative"),
        (lambda: drawn.promote(previous="0"), "previous is not a digest"),
    ],
)
def test_what_cannot_be_believed_cannot_be_built(make: Callable[[], object], says: str) -> None:
    """A digest without its whole command line and the origin of every input is no record, and so on."""
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("field", ["artifact", "target", "source", "plan", "rules", "title"])
def test_a_record_names_everything_that_it_rests_on(field: str) -> None:
    """None of these has a default, so none can be forgotten."""
    whole = {f.name: getattr(drawn.result(), f.name) for f in dataclasses.fields(records.Result)}
    del whole[field]
    with pytest.raises(TypeError, match=field):
        records.Result(**whole)


def test_a_record_is_frozen() -> None:
    """Nothing is updated; a new value is made."""
    record = drawn.result()
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.verdict = "refused"
    assert not hasattr(record, "__dict__")


def _stored(**predicate: Any) -> bytes:
    """A stored void with some keys of its predicate changed; None removes one."""
    statement = json.loads(records.to_bytes(drawn.void(sequence=1)))
    statement["predicate"] = {k: v for k, v in {**statement["predicate"], **predicate}.items() if v is not None}
    return json.dumps(statement, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _statement(**changes: Any) -> bytes:
    return canonical.dumps({**json.loads(_stored()), **changes})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xef\xbb\xbf" + _stored(), "ascii"),
        (_stored().replace(b'"who":"Ada"', b'"who":"Ada","who":"Eve"'), "'who' stands twice"),
        (_stored(voids=4.0), "4.0 is not an integer"),
        (_stored(voids=float("nan")), "NaN is not an integer"),
        (_stored(verdict="landed"), r"\$ has the unknown key 'verdict'"),
        (_stored(who=None), r"\$ lacks 'who'"),
        (_stored(voids="4"), r"\$\.voids is not of type int"),
        (_stored(voids=True), r"\$\.voids is not of type int"),
        (_stored(why=" "), "a void says who and why"),
        (_stored(artifact={"name": "a", "sha256": "0" * 64}), "the predicate is not an object"),
        (_stored().replace(b":", b": ", 1), "not in canonical form"),
        (_stored()[:-1], "not in canonical form"),
        (_stored() + b"\n", "not in canonical form"),
        (_statement(predicateType="urn:kestrel:landing:void:v2"), "unknown kind 'urn:kestrel:landing:void:v2'"),
        (_statement(predicateType="urn:kestrel:landing:approve:v1"), "unknown kind"),
        (_statement(predicateType=[]), r"unknown kind \[\]"),
        (_statement(predicateType=None), "unknown kind None"),
        (_statement(_type="https://in-toto.io/Statement/v2"), "not an in-toto Statement v1"),
        (_statement(signature="x"), "not a Statement"),
        (_statement(subject=[]), "one subject"),
        (_statement(subject=[{"name": "a", "digest": {"sha512": "0" * 128}}]), "one subject"),
        (_statement(subject=json.loads(_stored())["subject"] * 2), "one subject"),
        (_statement(predicate=[1]), "the predicate is not an object"),
        (b"[]\n", "not a Statement"),
        (b"", "Expecting value"),
    ],
)
def test_bytes_that_no_record_would_leave_are_refused(data: bytes, says: str) -> None:
    """A byte order mark, a key twice, a float, unknown keys, kinds and types, other spellings, other Statements."""
    with pytest.raises(ValueError, match=says):
        records.from_bytes(data)


def test_extra_keys_beside_name_and_digest_of_the_subject_are_refused() -> None:
    """A key that reading would drop is not read at all."""
    (subject,) = json.loads(_stored())["subject"]
    with pytest.raises(ValueError, match="one subject with a name and a sha256"):
        records.from_bytes(_statement(subject=[{**subject, "uri": "x"}]))


def test_a_null_where_a_field_may_be_absent_is_refused() -> None:
    """None is written by leaving the key out; a null would be a second spelling."""
    statement = json.loads(records.to_bytes(drawn.attempt(sequence=1)))
    statement["predicate"]["baseline"] = None
    with pytest.raises(ValueError, match=r"\$\.baseline is null"):
        records.from_bytes(canonical.dumps(statement))


def test_a_record_of_256_kib_is_stored_and_one_byte_more_is_not() -> None:
    """What is larger goes to the archive; the limit holds for reading too."""
    room = records.BYTES_MAX - len(records.to_bytes(drawn.void(why="x")))
    fits = drawn.void(why="x" * (room + 1))
    assert len(records.to_bytes(fits)) == 256 * 1024
    assert records.from_bytes(records.to_bytes(fits)) == fits
    with pytest.raises(ValueError, match="262145 bytes is larger than 262144"):
        records.to_bytes(drawn.void(why="x" * (room + 2)))
    with pytest.raises(ValueError, match="262145 bytes is larger than 262144"):
        records.from_bytes(records.to_bytes(fits) + b"\n")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/home/alice/kestrel/adder.c:3:1: error", "adder.c:3:1: error"),
        ("cannot open '/tmp/build-x/out/a.so'", "cannot open 'a.so'"),
        ("--root=/srv/ledgers/root", "--root=root"),
        ("3/4 of a/b, adder/run.py, https://example.org/x", "3/4 of a/b, adder/run.py, https://example.org/x"),
        ("{out}/lib/adder.so", "{out}/lib/adder.so"),
        ("-fdebug-prefix-map=a:/tmp/x/b //tmp//x/c", "-fdebug-prefix-map=a:b c"),
        ("nothing", "nothing"),
    ],
)
def test_text_for_a_record_loses_the_folders_of_this_machine(text: str, kept: str) -> None:
    """Absolute paths are cut to their last part; relative ones, fractions and addresses stay."""
    assert without_folders(text) == kept
