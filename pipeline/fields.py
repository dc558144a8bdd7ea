"""Values of a TOML table, each read by the one function that knows its limits and names its key. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pipeline.errors import ManifestError
from pipeline.subject import shown, suggest

ITEMS_MAX: Final = 512  # of a list, and of a table's rows
TEXT_MAX: Final = 4096  # characters
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Place:
    """A key of a manifest, to name it in an error."""

    file: str
    keys: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """All keys that lead here, in words."""
        return ".".join(map(shown, self.keys))

    def at(self, key: str) -> Place:
        """The place of a key inside this table."""
        return Place(self.file, (*self.keys, key))

    def wrong(self, what: str, todo: str) -> ManifestError:
        """The error to raise here."""
        return ManifestError(self.file, f"{self.key}: {what}" if self.keys else what, todo)


Reader: TypeAlias = Callable[[Place, Any], Any]
Keys: TypeAlias = Mapping[str, tuple[Reader, Any]]  # key -> how it is read, its default
NEEDED: Final = object()


def table(place: Place, value: Any) -> dict[str, Any]:
    """A table of a bounded number of rows."""
    if not isinstance(value, dict):
        raise place.wrong("is not a table", f"write [{place.key}]")
    if len(value) > ITEMS_MAX:
        raise place.wrong(f"has more than {ITEMS_MAX} rows", "split the subject")
    return value


def row(place: Place, value: Any, keys: Keys) -> dict[str, Any]:
    """A table with every key read and every default filled in."""
    given = table(place, {} if value is None else value)
    known(place, given, keys)
    for key, (_, default) in keys.items():
        if default is NEEDED and key not in given:
            raise place.at(key).wrong("is missing", "add it")
    return {key: read(place.at(key), given[key]) if key in given else default for key, (read, default) in keys.items()}


def rows(place: Place, value: Any, keys: Keys) -> list[dict[str, Any]]:
    """One table or an array of tables, each read; no rows for None."""
    if value is None:
        return []
    tables = value if isinstance(value, list) else [value]
    if not 1 <= len(tables) <= ITEMS_MAX:
        raise place.wrong(f"{len(tables)} tables", f"give 1 to {ITEMS_MAX}")
    return [row(place.at(str(i)) if len(tables) > 1 else place, one, keys) for i, one in enumerate(tables)]


def known(place: Place, given: Iterable[str], keys: Iterable[str]) -> None:
    """Raises ManifestError for a key that does not exist, with the nearest that does."""
    for key in given:
        if key not in keys:
            raise place.at(key).wrong("unknown key", suggest(key, keys))


def anything(place: Place, value: Any) -> Any:
    """What another function reads later."""
    return value


def text(place: Place, value: Any) -> str:
    """Some characters, without NUL."""
    if not isinstance(value, str):
        raise place.wrong("is not text", "put it in quotes")
    if not value or "\0" in value or len(value) > TEXT_MAX:
        raise place.wrong("is empty, holds a NUL or is too long", f"give 1 to {TEXT_MAX} characters")
    return value


def replacement(place: Place, value: Any) -> str:
    """Some characters or none."""
    return "" if value == "" else text(place, value)


def name(place: Place, value: Any) -> str:
    """A name that is safe as a file name and as an argument."""
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        raise place.wrong("is not a name", "use a-z, 0-9 and . _ -, 64 at most, the first a letter or digit")
    return value


def file_name(place: Place, value: Any) -> str:
    """The bare name of a file."""
    if not isinstance(value, str) or FILE_NAME.fullmatch(value) is None:
        raise place.wrong("is not a bare file name", "use letters, digits, dot, underscore, dash; no folder")
    return value


def path(place: Place, value: Any) -> str:
    """A relative path that stays inside the folder it starts from."""
    parts = text(place, value).split("/")
    if any(part in ("", ".", "..") for part in parts) or value.startswith("-") or "\\" in value:
        raise place.wrong(f"{shown(value)} is not a plain relative path", "name a file below the subject's folder")
    return str(value)


def glob(place: Place, value: Any) -> str:
    """A relative path in which `*`, `?` and, as a whole part, `**` stand for others."""
    checked = path(place, value)
    if any(letter in checked for letter in "[]{}") or any("**" in part and part != "**" for part in checked.split("/")):
        raise place.wrong(f"{shown(checked)} is not a glob", "use * and ? in a part, and ** as a whole part")
    return checked


def several(read: Reader) -> Reader:
    """A reader of lists: at least one item, each read by `read`, none twice."""

    def read_list(place: Place, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= ITEMS_MAX:
            raise place.wrong("is not a list of 1 or more", f'write ["..."] with 1 to {ITEMS_MAX} items')
        made = tuple(read(place.at(str(i)), item) for i, item in enumerate(value))
        if len(set(made)) != len(made):
            raise place.wrong("holds one item twice", "remove one")
        return made

    return read_list


def argv(place: Place, value: Any) -> tuple[str, ...]:
    """A program and its arguments. It is not split and no shell sees it."""
    if not isinstance(value, list) or not 1 <= len(value) <= ITEMS_MAX:
        raise place.wrong("is not a list of 1 or more arguments", 'write ["program", "argument"]')
    made = tuple(replacement(place.at(str(i)), item) for i, item in enumerate(value))
    if not made[0]:
        raise place.at("0").wrong("names no program", 'write ["program", "argument"]')
    return made


def sides(place: Place, value: Any) -> tuple[tuple[str, ...], ...]:
    """A list of commands; two equal ones are legal, since a repeat is a question too."""
    if not isinstance(value, list) or len(value) > ITEMS_MAX:
        raise place.wrong("is not a list of commands", 'write [["program", "argument"], ["program"]]')
    return tuple(argv(place.at(str(i)), item) for i, item in enumerate(value))


def whole(low: int, high: int) -> Reader:
    """A reader of integers from low to high."""

    def read_whole(place: Place, value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise place.wrong("is not a whole number in range", f"give {low} to {high}")
        return value

    return read_whole


def flag(place: Place, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise place.wrong("is not true or false", "write true or false, without quotes")
    return value


def choice(*words: str) -> Reader:
    """A reader of one of some words."""

    def read_choice(place: Place, value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            todo = suggest(value if isinstance(value, str) else "", words)
            raise place.wrong(f"{shown(str(value))} is not among {', '.join(words)}", todo)
        return value

    return read_choice


def env(place: Place, value: Any) -> tuple[tuple[str, str], ...]:
    """Variables of an environment, sorted by name."""
    for key in table(place, value):
        if ENV_NAME.fullmatch(key) is None:
            raise place.at(key).wrong("is not a variable's name", "use letters, digits and underscores")
    return tuple((key, replacement(place.at(key), item)) for key, item in sorted(value.items()))
