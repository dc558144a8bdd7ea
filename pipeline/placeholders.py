"""The words in braces of a command line: which mean something where, which must be there, how they are filled. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pipeline.errors import ManifestError
from pipeline.fields import Place
from pipeline.subject import shown, suggest

# A word that ends in a colon takes a name, for example {archive:d}.
BUILD: Final = ("python", "out", "input:")
CHECK: Final = ("python", "out", "candidate", "baseline", "candidate:", "archive:", "tools:", "input:")
BENCH: Final = ("python", "out", "artifact", "tools:", "input:")
FIGURE: Final = ("python", "out", "artifact", "candidate", "candidate:", "tools:", "input:")
NAMED: Final = {"candidate:": "target", "archive:": "block", "tools:": "block", "input:": "input"}

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


def words(argv: Sequence[str]) -> tuple[str, ...]:
    """The placeholders of a command line, without braces, sorted, each once: `("archive:d", "out")`."""
    return _words(tuple(argv))


@functools.lru_cache(maxsize=1024)  # every job of a check has its commands, and every landing its checks
def _words(argv: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({word for argument in argv for word in _PLACEHOLDER.findall(argument)}))


def fill(argv: Sequence[str], mapping: Mapping[str, str]) -> tuple[str, ...]:
    """The command line with every placeholder replaced, once: what is put in is not looked at again.

    Raises ManifestError for a placeholder that the mapping lacks.
    """

    def value(match: re.Match[str]) -> str:
        word = match.group(1)
        if word not in mapping:
            known = ", ".join(f"{{{name}}}" for name in sorted(mapping))
            raise ManifestError(f"{{{shown(word)}}}", "means nothing to this command", f"it may use {known}")
        return mapping[word]

    return tuple(_PLACEHOLDER.sub(value, argument) for argument in argv)


def check(
    place: Place,
    argv: Sequence[str],
    known: Sequence[str],
    wanted: Sequence[str],
    names: Mapping[str, tuple[str, ...]],
) -> None:
    """Raises ManifestError for a placeholder that means nothing here, or for a wanted one that is absent."""
    used = words(argv)
    for word in used:
        head, colon, name = word.partition(":")
        if head + colon not in known:
            choices = [f"{choice}{NAMED[choice].upper()}" if choice in NAMED else choice for choice in known]
            raise place.wrong(f"{{{shown(word)}}}: unknown placeholder", suggest(word, choices))
        if colon and name not in names[NAMED[head + colon]]:
            noun = NAMED[head + colon]
            raise place.wrong(f"{{{shown(word)}}}: there is no such {noun}", suggest(name, names[noun]))
    if any(brace in _PLACEHOLDER.sub("", argument) for argument in argv for brace in "{}"):
        raise place.wrong("has a brace that belongs to no placeholder", "remove it")
    for word in wanted:
        if word not in used:
            raise place.wrong(f"does not mention {{{word}}}", "add it; nothing else ties the command to its proof")
