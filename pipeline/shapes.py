"""Plain JSON data to frozen dataclasses, strictly: the inverse of `canonical.plain`, by the types of the fields. Pure.

The function that reads a type is made once, from its annotations: a ledger is read record by record.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
REMEMBERED_MAX = 10_000  # rows of one kind
SCALARS = frozenset((str, int, bool))


Reader = Callable[[Any], Any]


class ShapeError(Exception):
    """A mistake, and the way to it: containers add their part as it passes them."""

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what)
        self.what, self.path = what, path

    def inside(self, part: str) -> ShapeError:
        """The same mistake, seen from one container further out."""
        return ShapeError(self.what, part + self.path)

    def at(self, where: str) -> str:
        """Where and what, in words."""
        return f"{where}{self.path} {self.what}"


def typed(kind: type[T], value: Any, where: str = "$") -> T:
    """Plain JSON data as a `kind`. Raises ValueError that names the place of the first mistake.

    The inverse of `plain` and nothing more: a field that may be None is absent then, and every other is there.
    """
    try:
        return typing.cast(T, _reader(typing.cast(Any, kind))(value))
    except ShapeError as error:
        raise ValueError(error.at(where)) from None


def camel(name: str) -> str:
    """`p_numerator` to `pNumerator`."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


@functools.cache
def keys(kind: Any) -> tuple[tuple[str, str], ...]:
    """Key and field of a dataclass."""
    return tuple((camel(field.name), field.name) for field in dataclasses.fields(kind))


@functools.cache
def _reader(kind: Any) -> Reader:
    """The function that reads a `kind`, made once: it raises ShapeError."""
    origin = typing.get_origin(kind)
    if kind is Any:
        return lambda value: value
    if origin in (typing.Union, types.UnionType):
        (inner,) = (_reader(option) for option in typing.get_args(kind) if option is not type(None))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        items = typing.get_args(kind)
        return _list_reader(items[0]) if items[1:] == (Ellipsis,) else _row_reader(items)
    if origin in (dict, Mapping):
        return _table_reader(typing.get_args(kind)[1])
    return _dataclass_reader(kind) if dataclasses.is_dataclass(kind) else _scalar_reader(kind)


def _scalar_reader(kind: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ShapeError(f"is not of type {kind.__name__}")
        return value

    return read


def _list_reader(kind: Any) -> Reader:
    item, scalars = _reader(kind), _sets_of(kind)

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise ShapeError("is not a list")
        if set(map(type, value)) in scalars:
            return tuple(value)
        made: list[Any] = []
        try:
            for one in value:
                made.append(item(one))
        except ShapeError as error:
            raise error.inside(f"[{len(made)}]") from None
        return tuple(made)

    return read


def _row_reader(kinds: tuple[Any, ...]) -> Reader:
    readers = [_reader(kind) for kind in kinds]
    scalars = kinds if SCALARS.issuperset(kinds) else None

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise ShapeError("is not a list")
        if tuple(map(type, value)) == scalars:
            return tuple(value)
        if len(value) != len(readers):
            raise ShapeError(f"has {len(value)} items where {len(readers)} belong")
        made: list[Any] = []
        try:
            for reader, one in zip(readers, value, strict=True):
                made.append(reader(one))
        except ShapeError as error:
            raise error.inside(f"[{len(made)}]") from None
        return tuple(made)

    return read


def _table_reader(kind: Any) -> Reader:
    item, scalars = _reader(kind), _sets_of(kind)

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise ShapeError("is not an object")
        if set(map(type, value.values())) in scalars:
            return value.copy()
        made = {}
        for name, one in value.items():
            try:
                made[name] = item(one)
            except ShapeError as error:
                raise error.inside(f".{name}") from None
        return made

    return read


def _sets_of(kind: Any) -> tuple[set[Any], ...]:
    """The sets of types with which a list of scalars, as most are, is read at once."""
    return (set(), {kind}) if kind in SCALARS else ()


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
    wanted = frozenset(needed)

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise ShapeError("is not an object")
        made: dict[str, Any] = absent.copy()
        for key, one in value.items():
            if key not in rows:
                raise ShapeError(f"has the unknown key {key!r}")
            name, hint, reader = rows[key]
            if type(one) is hint:  # a scalar, as most are
                made[name] = one
                continue
            if one is None:
                raise ShapeError("is null, and may only be absent", f".{key}")
            try:
                made[name] = reader(one)
            except ShapeError as error:
                raise error.inside(f".{key}") from None
        if not wanted <= value.keys():
            raise ShapeError(f"lacks {next(key for key in needed if key not in value)!r}")
        return kind(**made)

    return _remembered(read, kind) if all(hint in SCALARS for _, hint, _ in rows.values()) else read


def _remembered(read: Reader, kind: Any) -> Reader:
    """The same, but equal rows of scalars, which evidence holds by the hundred, are made once."""
    names = tuple(key for key, _ in keys(kind))
    row_of = operator.itemgetter(*names, names[0])  # of two names or more it makes a tuple
    hints = tuple(map(typing.get_type_hints(kind).get, (field.name for field in dataclasses.fields(kind))))
    types_of = (*hints, hints[0])
    known: dict[tuple[Any, ...], Any] = {}

    def look(value: Any) -> Any:
        try:
            row = row_of(value)
            if len(value) != len(names) or tuple(map(type, row)) != types_of:
                return read(value)
            made = known.get(row)
        except (KeyError, TypeError):
            return read(value)
        if made is None:
            if len(known) > REMEMBERED_MAX:
                known.clear()
            made = known[row] = read(value)
        return made

    return look
