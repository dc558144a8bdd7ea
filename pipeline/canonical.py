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
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")
INTEGER_MAX = 2**63 - 1
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


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
    _check(value, "$")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


def loads(data: bytes) -> Any:
    """Plain JSON data of canonical bytes. Raises ValueError for anything that `dumps` would not have written."""
    try:
        value = json.loads(data.decode("ascii"), object_pairs_hook=_unique, parse_float=_no_float, parse_constant=_no_float)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if dumps(value) != data:
        raise ValueError("not in canonical form")
    return value


def plain(value: Any) -> Any:
    """A dataclass as plain JSON data: fields that are None are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((camel(field.name), getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: plain(item) for name, item in pairs if item is not None}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def typed(kind: type[T], value: Any, where: str = "$") -> T:
    """Plain JSON data as a `kind`. Raises ValueError that names the place of the first mistake."""
    return typing.cast(T, _typed(kind, value, where))


def camel(name: str) -> str:
    """`p_numerator` to `pNumerator`."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _typed(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        (inner,) = (option for option in typing.get_args(kind) if option is not type(None))
        return _typed(inner, value, where)
    if origin is tuple:
        return _typed_tuple(typing.get_args(kind), value, where)
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise ValueError(f"{where} is not an object")
        inner = typing.get_args(kind)[1]
        return {name: _typed(inner, item, f"{where}.{name}") for name, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return _typed_dataclass(kind, value, where)
    if type(value) is not kind:
        raise ValueError(f"{where} is not of type {kind.__name__}")
    return value


def _typed_tuple(items: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where} is not a list")
    if len(items) == 2 and items[1] is Ellipsis:
        return tuple(_typed(items[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if len(items) != len(value):
        raise ValueError(f"{where} has {len(value)} items where {len(items)} belong")
    return tuple(_typed(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(items, value, strict=True)))


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[str, Any, bool]]:
    """Key to (field, type, required) of a dataclass."""
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    made = {}
    for field in dataclasses.fields(kind):
        defaulted = field.default is not missing or field.default_factory is not missing
        made[camel(field.name)] = (field.name, hints[field.name], not defaulted and not _may_be_none(hints[field.name]))
    return made


def _may_be_none(kind: Any) -> bool:
    return type(None) in typing.get_args(kind)


def _typed_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    known = _fields(kind)
    for key in value:
        if key not in known:
            raise ValueError(f"{where} has the unknown key {key!r}")
    for key, (_, _, required) in known.items():
        if required and key not in value:
            raise ValueError(f"{where} lacks {key!r}")
    absent = {name: None for name, hint, _ in known.values() if _may_be_none(hint)}
    made = {known[key][0]: _typed(known[key][1], item, f"{where}.{key}") for key, item in value.items()}
    return kind(**absent | made)


def _check(value: Any, where: str) -> None:
    if value is None or isinstance(value, (str, bool)):
        return
    if isinstance(value, int):
        if abs(value) > INTEGER_MAX:
            raise ValueError(f"{where} is beyond 64 bits")
    elif isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise ValueError(f"{where} has a key that is not text")
            _check(item, f"{where}.{name}")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _check(item, f"{where}[{i}]")
    else:
        raise ValueError(f"{where} is of type {type(value).__name__}, which has no canonical form")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError(f"the key {next(k for i, (k, _) in enumerate(pairs) if k in dict(pairs[:i]))!r} stands twice")
    return made


def _no_float(text: str) -> Any:
    raise ValueError(f"the number {text} is not an integer")
