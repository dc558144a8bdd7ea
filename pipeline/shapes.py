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
            made.extend(map(item, value))
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
    """A row that is as it should be is read at once; any other by `careful`, which says what is wrong with it."""
    hints = typing.get_type_hints(kind)
    fields = [(camel(f.name), f.name, hints[f.name]) for f in dataclasses.fields(kind)]
    absent = [field for field in fields if type(None) in typing.get_args(field[2])]
    needed = [field for field in fields if field not in absent]
    rows = {key: (name, _reader(hint)) for key, name, hint in fields}
    careful = _careful_reader(kind, rows, dict.fromkeys(name for _, name, _ in absent))
    row_of = operator.itemgetter(*(key for key, _, _ in needed), needed[0][0])  # of two names or more it makes a tuple
    types_of = tuple(_json_type(hint) for _, _, hint in (*needed, needed[0]))
    inner = [(i, _reader(hint)) for i, (_, _, hint) in enumerate(needed) if hint not in SCALARS]
    others = [(key, _reader(hint)) for key, _, hint in absent]
    make = _maker(kind, [name for _, name, _ in (*needed, *absent)])

    def read(value: Any) -> Any:
        try:
            row = row_of(value)
            if tuple(map(type, row)) != types_of:
                return careful(value)
            made = list(row[:-1])
            for i, reader in inner:
                made[i] = reader(made[i])
            made += [None if (one := value.get(key)) is None else reader(one) for key, reader in others]
        except (KeyError, TypeError, ValueError, ShapeError):
            return careful(value)
        return make(made) if len(value) == len(made) - made.count(None) else careful(value)

    return read if inner or others else _remembered(row_of, types_of, make, careful)


def _remembered(row_of: Reader, types_of: tuple[type, ...], make: Reader, careful: Reader) -> Reader:
    """The same for rows of scalars, but equal ones, which evidence holds by the hundred, are made once."""
    known: dict[tuple[Any, ...], Any] = {}
    mixed = set(types_of) != {str}  # True equals 1, but no text equals what is none

    def look(value: Any) -> Any:
        try:
            row = row_of(value)
            made = known.get(row)
        except (KeyError, TypeError):
            return careful(value)
        if len(value) != len(types_of) - 1 or ((mixed or made is None) and tuple(map(type, row)) != types_of):
            return careful(value)
        if made is None:
            if len(known) > REMEMBERED_MAX:
                known.clear()
            made = known[row] = make(row)
        return made

    return look


def _maker(kind: Any, names: list[str]) -> Reader:
    """A frozen dataclass of its values in this order, by its slots: its own __init__ takes twice as long."""
    if not hasattr(kind, "__slots__"):
        return lambda row: kind(**dict(zip(names, row, strict=True)))
    puts = [getattr(kind, name).__set__ for name in names]
    check = getattr(kind, "__post_init__", None)

    def make(row: Any) -> Any:
        made = object.__new__(kind)
        for put, value in zip(puts, row, strict=False):  # of scalars, the first stands at the end again
            put(made, value)
        if check is not None:
            check(made)
        return made

    return make


def _careful_reader(kind: Any, rows: Mapping[str, tuple[str, Reader]], absent: dict[str, None]) -> Reader:
    """`rows`: key to field and its reader; `absent`: the fields that may be."""

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise ShapeError("is not an object")
        made: dict[str, Any] = absent.copy()
        for key, one in value.items():
            if key not in rows:
                raise ShapeError(f"has the unknown key {key!r}")
            name, reader = rows[key]
            if one is None:
                raise ShapeError("is null, and may only be absent", f".{key}")
            try:
                made[name] = reader(one)
            except ShapeError as error:
                raise error.inside(f".{key}") from None
        lacking = next((key for key, (name, _) in rows.items() if name not in made), None)
        if lacking is not None:
            raise ShapeError(f"lacks {lacking!r}")
        return kind(**made)

    return read


def _json_type(hint: Any) -> type:
    """The type that JSON's own reader gives for it."""
    return hint if hint in SCALARS else list if typing.get_origin(hint) is tuple else dict
