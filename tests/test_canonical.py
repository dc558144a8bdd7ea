"""canonical.py: one value has one spelling, and nothing that writing never makes can be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import canonical

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-canonical.INTEGER_MAX, canonical.INTEGER_MAX) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of another."""

    name: str
    size_bytes: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A row of scalars alone."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Table:
    """One of each shape that a stored dataclass has."""

    rows: tuple[Row, ...]
    pair: tuple[int | None, int]
    by_name: Mapping[str, tuple[str, ...]]
    is_final: bool = False
    wanted: Row | None = None


TABLE = Table(rows=(Row("a", 1), Row("b", 2, "two")), pair=(None, 3), by_name={"x": ("y", "z")})
TABLE_BYTES = (
    b'{"byName":{"x":["y","z"]},"isFinal":false,"pair":[null,3],'
    b'"rows":[{"name":"a","sizeBytes":1},{"name":"b","note":"two","sizeBytes":2}]}\n'
)


@given(PLAIN)
@settings(derandomize=True, database=None, max_examples=200, deadline=None)
def test_what_is_written_is_read_back_and_has_one_spelling(value: object) -> None:
    """Any plain value comes back equal, and from its own bytes come the same bytes."""
    data = canonical.dumps(value)
    assert canonical.loads(data) == value
    assert canonical.dumps(canonical.loads(data)) == data
    assert data.isascii() and data.endswith(b"\n") and data.count(b"\n") == 1


def test_keys_are_sorted_and_nothing_is_padded() -> None:
    """Insertion order and spaces leave no trace."""
    assert canonical.dumps({"b": 1, "a": ["é", True, None]}) == b'{"a":["\\u00e9",true,null],"b":1}\n'


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (0.5, r"\$ is of type float"),
        ({"a": [1, {"b": float("nan")}]}, r"\$\.a\[1\]\.b is of type float"),
        (2**63, r"\$ is beyond 64 bits"),
        (-(2**63), r"\$ is beyond 64 bits"),
        ({1: "x"}, r"\$ has a key that is not text"),
        (b"bytes", r"\$ is of type bytes"),
        ({"a": {1, 2}}, r"\$\.a is of type set"),
    ],
)
def test_what_has_no_canonical_form_is_not_written(value: object, says: str) -> None:
    """Floats, large integers, other keys and other types are refused with their place."""
    with pytest.raises(ValueError, match=says):
        canonical.dumps(value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'\xef\xbb\xbf{"a":1}\n', "ascii"),
        ('{"a":"é"}\n'.encode(), "ascii"),
        (b'{"a":1,"a":1}\n', "'a' stands twice"),
        (b'{"b":{"a":1,"a":2}}\n', "'a' stands twice"),
        (b'{"a":1.0}\n', "1.0 is not an integer"),
        (b'{"a":1e3}\n', "1e3 is not an integer"),
        (b'{"a":NaN}\n', "NaN is not an integer"),
        (b'{"a":-Infinity}\n', "-Infinity is not an integer"),
        (b'{"a":9223372036854775808}\n', "beyond 64 bits"),
        (b'{"a":-0}\n', "not in canonical form"),
        (b'{"b":1,"a":2}\n', "not in canonical form"),
        (b'{"a": 1}\n', "not in canonical form"),
        (b'{"a":1}', "not in canonical form"),
        (b'{"a":1}\r\n', "not in canonical form"),
        (b'{"a":1}\n\n', "not in canonical form"),
        (b' {"a":1}\n', "not in canonical form"),
        (b'{"a":"\\u0041"}\n', "not in canonical form"),
        (b'{"a":1}\n{"b":2}\n', "Extra data"),
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
    ],
)
def test_another_spelling_is_refused(data: bytes, says: str) -> None:
    """A byte order mark, a key twice, a float, another order, spaces, line ends, escapes, a tail: not one is read."""
    with pytest.raises(ValueError, match=says):
        canonical.loads(data)


@pytest.mark.parametrize("depth", [400, *range(900, 1000, 7), 2000, 100_000])
def test_deep_nesting_is_a_value_error_or_is_read(depth: int) -> None:
    """No depth ends in another error than the one that a caller expects."""
    data = b"[" * depth + b"]" * depth + b"\n"
    try:
        assert canonical.dumps(canonical.loads(data)) == data
    except ValueError as error:
        assert depth > 400
        assert "nested too deeply" in str(error)


def test_a_dataclass_becomes_lower_camel_case_and_comes_back() -> None:
    """Fields that are None are left out; tuples, mappings and rows come back as they were."""
    assert canonical.dumps(canonical.plain(TABLE)) == TABLE_BYTES
    assert canonical.typed(Table, canonical.loads(TABLE_BYTES)) == TABLE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"extra": 1}, r"\$ has the unknown key 'extra'"),
        ({"is_final": True}, r"\$ has the unknown key 'is_final'"),
        ({"rows": {}}, r"\$\.rows is not a list"),
        ({"rows": [{"name": "a"}]}, r"\$\.rows\[0\] lacks 'sizeBytes'"),
        ({"rows": [{"name": "a", "sizeBytes": True}]}, r"\$\.rows\[0\]\.sizeBytes is not of type int"),
        ({"rows": [{"name": 1, "sizeBytes": 1}]}, r"\$\.rows\[0\]\.name is not of type str"),
        ({"rows": ["a"]}, r"\$\.rows\[0\] is not an object"),
        ({"pair": [1]}, r"\$\.pair has 1 items where 2 belong"),
        ({"pair": [1, None]}, r"\$\.pair\[1\] is not of type int"),
        ({"byName": {"x": "y"}}, r"\$\.byName\.x is not a list"),
        ({"byName": ["x"]}, r"\$\.byName is not an object"),
        ({"isFinal": 1}, r"\$\.isFinal is not of type bool"),
        ({"wanted": None}, r"\$\.wanted is null, and may only be absent"),
        ({"rows": [{"name": "a", "sizeBytes": None}]}, r"\$\.rows\[0\]\.sizeBytes is null"),
        ({"wanted": 3}, r"\$\.wanted is not an object"),
    ],
)
def test_a_value_of_another_shape_is_refused_with_its_place(change: dict[str, object], says: str) -> None:
    """Unknown and missing keys, other types and lengths; a bool is no int."""
    with pytest.raises(ValueError, match=says):
        canonical.typed(Table, json.loads(TABLE_BYTES) | change)


@pytest.mark.parametrize("value", [0.5, 2**63, -(2**63), b"x", {1, 2}, object()])
def test_what_has_no_canonical_form_is_not_packed_either(value: object) -> None:
    """Wherever in a dataclass it stands."""
    assert canonical.pack(TABLE) == TABLE_BYTES
    for held in (Row("a", value), Table((), (None, value), {}), Table((), (None, 1), {"x": (value,)})):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="has no canonical form"):
            canonical.pack(held)


def test_bytes_that_a_digest_pins_are_read_in_any_spelling_of_the_same_data() -> None:
    """Spaces and order are not asked for then; floats, large integers and constants are refused as ever."""
    assert canonical.loads(b'{"b": 1,"a":2}', pinned=True) == {"a": 2, "b": 1}
    for data in (b'{"a":1.0}', b'{"a":9223372036854775808}', b'{"a":NaN}', b"{", "{é}".encode()):
        with pytest.raises(ValueError):
            canonical.loads(data, pinned=True)


def test_digests_are_lower_case_hex_of_sha256() -> None:
    """The one spelling of a digest is known, and no other passes."""
    digest = canonical.sha256(b"abc")
    assert digest == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert canonical.is_digest(digest)
    others = (digest.upper(), digest[:-1], digest + "0", digest + "\n", "g" * 64, None, 5, digest.encode())
    assert not any(canonical.is_digest(other) for other in others)


@pytest.mark.parametrize("odd", [True, 1.0, "1", None, [1]])
def test_rows_that_are_remembered_are_told_from_equal_ones_of_another_type(odd: object) -> None:
    """A row that was read before is made once; 1 is remembered, and True, which equals it, is no int all the same."""
    row = {"name": "a", "sizeBytes": 1}
    one, other = canonical.typed(tuple[Pair, ...], [row, dict(row)])
    assert one is other
    with pytest.raises(ValueError, match=r"\$\[1\]\.sizeBytes is"):
        canonical.typed(tuple[Pair, ...], [row, row | {"sizeBytes": odd}])
    with pytest.raises(ValueError, match=r"\$\[0\] has the unknown key 'more'"):
        canonical.typed(tuple[Pair, ...], [row | {"more": 1}])
