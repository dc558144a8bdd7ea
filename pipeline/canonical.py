"""Frozen dataclasses to canonical JSON and back, strictly.

Canonical: sorted keys, no spaces, ASCII, one newline at the end, and no floats: integers with the unit in the
name, or strings. `snake_case` fields are `lowerCamelCase` keys. Reading refuses what writing never makes:
duplicate keys, unknown or missing keys, floats, a byte order mark, other spellings of the same value.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import typing
from collections.abc import Mapping
from typing import Any

from pipeline.shapes import ShapeError, keys
from pipeline.shapes import typed as typed

INTEGER_MAX = 2**63 - 1
DIGITS_MAX = 21  # of an integer that is worth reading
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_SAFE = frozenset((str, bool, type(None)))  # an integer may be too large
_LISTS = (list, tuple)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, check_circular=False)


def sha256(data: bytes) -> str:
    """The digest of some bytes: sha256 in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def is_digest(text: object) -> bool:
    """True for 64 lower-case hex digits."""
    return isinstance(text, str) and _DIGEST.match(text) is not None


def dumps(value: Any) -> bytes:
    """Canonical bytes of plain JSON data.

    Raises ValueError for a float, an integer beyond 64 bits, or a type that JSON does not have.
    """
    try:
        _check(value)
    except ShapeError as error:
        raise ValueError(error.at("$")) from None
    return _encode(value)


def loads(data: bytes, *, pinned: bool = False) -> Any:
    """Plain JSON data of canonical bytes. Raises ValueError for anything that `dumps` would not have written.

    Bytes that a digest pins, as an archived object's, have no other spelling to be told from: that is not asked then.
    """
    text = data.decode("ascii")
    try:
        value = _DECODER.decode(text)
        if not pinned and _encode(value) != data:
            json.loads(text, object_pairs_hook=_unique)
            raise ValueError("not in canonical form")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def pack(value: Any) -> bytes:
    """Canonical bytes of a dataclass, or of a tuple of them."""
    return _encode(plain(value))


def plain(value: Any) -> Any:
    """A dataclass as plain JSON data: fields that are None are left out. Raises ValueError for what JSON has not."""
    kind: Any = type(value)
    if kind in _SAFE or (kind is int and -INTEGER_MAX <= value <= INTEGER_MAX):
        return value
    if kind is tuple or kind is list:
        if _SAFE.issuperset(map(type, value)):
            return list(value)
        return [item if type(item) in _SAFE else plain(item) for item in value]
    rows = _keys(kind)
    if rows is not None:
        made = {}
        for key, name in rows:
            item = getattr(value, name)
            if item is not None:
                made[key] = item if type(item) in _SAFE else plain(item)
        return made
    if kind is dict or isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    raise ValueError(f"{value!r:.80} has no canonical form")


@functools.cache
def _keys(kind: Any) -> tuple[tuple[str, str], ...] | None:
    """Key and field of a dataclass; None of any other type."""
    return keys(typing.cast(Any, kind)) if dataclasses.is_dataclass(kind) else None


def _encode(value: Any) -> bytes:
    return _ENCODER.encode(value).encode() + b"\n"


def _check(value: Any) -> None:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is int:
        if abs(value) > INTEGER_MAX:
            raise ShapeError("is beyond 64 bits")
    elif kind is dict:
        for name, item in value.items():
            if type(name) is not str:
                raise ShapeError("has a key that is not text")
            try:
                _check(item)
            except ShapeError as error:
                raise error.inside(f".{name}") from None
    elif kind in _LISTS:
        for i, item in enumerate(value):
            inner = type(item)
            if inner in _SAFE or (inner in _LISTS and _SAFE.issuperset(map(type, item))):
                continue  # text, or a row of it, as most are
            try:
                _check(item)
            except ShapeError as error:
                raise error.inside(f"[{i}]") from None
    else:
        raise ShapeError(f"is of type {kind.__name__}, which has no canonical form")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError(f"the key {next(k for i, (k, _) in enumerate(pairs) if k in dict(pairs[:i]))!r} stands twice")
    return made


def _integer(text: str) -> int:
    value = int(text) if len(text) < DIGITS_MAX else INTEGER_MAX + 1
    if not -INTEGER_MAX <= value <= INTEGER_MAX:
        raise ValueError(f"the number {text[:DIGITS_MAX]} is beyond 64 bits")
    return value


def _no_float(text: str) -> Any:
    raise ValueError(f"the number {text} is not an integer")


_DECODER = json.JSONDecoder(parse_float=_no_float, parse_int=_integer, parse_constant=_no_float)
