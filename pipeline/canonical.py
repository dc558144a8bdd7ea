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
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
INTEGER_MAX = 2**63 - 1
REMEMBERED_MAX = 10_000  # rows of one kind
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_LONG = re.compile(rb"[:,\[]-?([0-9]{19,})")  # what may be an integer beyond 64 bits
_SCALARS = frozenset((str, int, bool, float, type(None)))


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
    except _ShapeError as error:
        raise ValueError(error.at("$")) from None
    return _encode(value)


def loads(data: bytes) -> Any:
    """Plain JSON data of canonical bytes. Raises ValueError for anything that `dumps` would not have written."""
    text = data.decode("ascii")
    try:
        value = json.loads(text, parse_float=_no_float, parse_constant=_no_float)
        if any(int(digits) > INTEGER_MAX for digits in _LONG.findall(data)):
            dumps(value)
        if _encode(value) != data:
            json.loads(text, object_pairs_hook=_unique)
            raise ValueError("not in canonical form")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def plain(value: Any) -> Any:
    """A dataclass as plain JSON data: fields that are None are left out."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple or kind is list:
        return [item if type(item) in _SCALARS else plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if not dataclasses.is_dataclass(value):
        return value
    made = {}
    for key, name in _keys(typing.cast(Any, kind)):
        item = getattr(value, name)
        if item is not None:
            made[key] = item if type(item) in _SCALARS else plain(item)
    return made


def typed(kind: type[T], value: Any, where: str = "$") -> T:
    """Plain JSON data as a `kind`. Raises ValueError that names the place of the first mistake.

    The inverse of `plain` and nothing more: a field that may be None is absent then, and every other is there.
    """
    try:
        return typing.cast(T, _reader(typing.cast(Any, kind))(value))
    except _ShapeError as error:
        raise ValueError(error.at(where)) from None


def camel(name: str) -> str:
    """`p_numerator` to `pNumerator`."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


class _ShapeError(Exception):
    """A mistake, and the way to it: containers add their part as it passes them."""

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what)
        self.what, self.path = what, path

    def inside(self, part: str) -> _ShapeError:
        return _ShapeError(self.what, part + self.path)

    def at(self, where: str) -> str:
        return f"{where}{self.path} {self.what}"


Reader = Callable[[Any], Any]


@functools.cache
def _reader(kind: Any) -> Reader:
    """The function that reads a `kind`, made once: it raises _ShapeError."""
    origin = typing.get_origin(kind)
    if kind is Any:
        return lambda value: value
    if origin in (typing.Union, types.UnionType):
        (inner,) = (_reader(option) for option in typing.get_args(kind) if option is not type(None))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        items = typing.get_args(kind)
        return _list_reader(_reader(items[0])) if items[1:] == (Ellipsis,) else _row_reader(items)
    if origin in (dict, Mapping):
        return _table_reader(_reader(typing.get_args(kind)[1]))
    return _dataclass_reader(kind) if dataclasses.is_dataclass(kind) else _scalar_reader(kind)


def _scalar_reader(kind: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _ShapeError(f"is not of type {kind.__name__}")
        return value

    return read


def _list_reader(item: Reader) -> Reader:
    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _ShapeError("is not a list")
        made: list[Any] = []
        try:
            for one in value:
                made.append(item(one))
        except _ShapeError as error:
            raise error.inside(f"[{len(made)}]") from None
        return tuple(made)

    return read


def _row_reader(kinds: tuple[Any, ...]) -> Reader:
    readers = [_reader(kind) for kind in kinds]

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _ShapeError("is not a list")
        if len(value) != len(readers):
            raise _ShapeError(f"has {len(value)} items where {len(readers)} belong")
        made: list[Any] = []
        try:
            for reader, one in zip(readers, value, strict=True):
                made.append(reader(one))
        except _ShapeError as error:
            raise error.inside(f"[{len(made)}]") from None
        return tuple(made)

    return read


def _table_reader(item: Reader) -> Reader:
    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _ShapeError("is not an object")
        made = {}
        for name, one in value.items():
            try:
                made[name] = item(one)
            except _ShapeError as error:
                raise error.inside(f".{name}") from None
        return made

    return read


def _dataclass_reader(kind: Any) -> Reader:
    hints = typing.get_type_hints(kind)
    rows: dict[str, tuple[str, Any, Reader]] = {}
    needed: list[str] = []
    absent: dict[str, None] = {}
    for field in dataclasses.fields(kind):
        rows[camel(field.name)] = (field.name, hints[field.name], _reader(hints[field.name]))
        if type(None) in typing.get_args(hints[field.name]):
            absent[field.name] = None
        else:
            needed.append(camel(field.name))

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _ShapeError("is not an object")
        made: dict[str, Any] = absent.copy()
        for key, one in value.items():
            if key not in rows:
                raise _ShapeError(f"has the unknown key {key!r}")
            name, hint, reader = rows[key]
            if type(one) is hint:  # a scalar, as most are
                made[name] = one
                continue
            if one is None:
                raise _ShapeError("is null, and may only be absent", f".{key}")
            try:
                made[name] = reader(one)
            except _ShapeError as error:
                raise error.inside(f".{key}") from None
        for key in needed:
            if key not in value:
                raise _ShapeError(f"lacks {key!r}")
        return kind(**made)

    return _remembered(read, kind) if all(hint in _SCALARS for _, hint, _ in rows.values()) else read


def _remembered(read: Reader, kind: Any) -> Reader:
    """The same, but equal rows of scalars, which evidence holds by the hundred, are made once."""
    keys = tuple(key for key, _ in _keys(kind))
    hints = tuple(typing.get_type_hints(kind).values())
    known: dict[tuple[Any, ...], Any] = {}

    def look(value: Any) -> Any:
        try:
            row = tuple([value[key] for key in keys])
            if len(value) == len(keys) and tuple(map(type, row)) == hints:
                if row not in known:
                    if len(known) > REMEMBERED_MAX:
                        known.clear()
                    known[row] = read(value)
                return known[row]
        except (KeyError, TypeError):
            pass
        return read(value)

    return look


@functools.cache
def _keys(kind: Any) -> tuple[tuple[str, str], ...]:
    """Key and field of a dataclass."""
    return tuple((camel(field.name), field.name) for field in dataclasses.fields(kind))


def _encode(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


def _check(value: Any) -> None:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is int:
        if abs(value) > INTEGER_MAX:
            raise _ShapeError("is beyond 64 bits")
    elif kind is dict:
        for name, item in value.items():
            if type(name) is not str:
                raise _ShapeError("has a key that is not text")
            try:
                _check(item)
            except _ShapeError as error:
                raise error.inside(f".{name}") from None
    elif kind is list or kind is tuple:
        for i, item in enumerate(value):
            try:
                _check(item)
            except _ShapeError as error:
                raise error.inside(f"[{i}]") from None
    else:
        raise _ShapeError(f"is of type {kind.__name__}, which has no canonical form")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError(f"the key {next(k for i, (k, _) in enumerate(pairs) if k in dict(pairs[:i]))!r} stands twice")
    return made


def _no_float(text: str) -> Any:
    raise ValueError(f"the number {text} is not an integer")
