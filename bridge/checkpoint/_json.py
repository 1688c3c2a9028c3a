"""JSON from a file, read strictly.

Python's reader is lenient where two readers could see two files: of two equal names it keeps the last
in silence, and it knows numbers that JSON has not. It also reads whole numbers of any length, of
which a product takes quadratic time and cannot be shown; no count, size or place in a file has more
than twenty digits. And it makes sixty bytes of each pair of brackets, of which no table of a
checkpoint has more than one in twelve bytes.
"""

from __future__ import annotations

import json
from typing import Any

from bridge.checkpoint.errors import BadFormat, Unsafe, brief


_MAX_DIGITS = 40
_BRACKET_EVERY = 8
_ALWAYS_BRACKETS = 1 << 17


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        BadFormat: If the text is not UTF-8 or not JSON, if an object has a name twice, or if a whole
            number is longer than any that a file needs.
        Unsafe: If it consists of brackets.
    """
    brackets = data.count(b"[") + data.count(b"{")
    if brackets > len(data) // _BRACKET_EVERY + _ALWAYS_BRACKETS:
        raise Unsafe(f"{brackets} lists and objects in {len(data)} bytes of JSON")
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_int=_whole_number,
        )
    except (ValueError, RecursionError) as error:
        raise BadFormat(f"not valid JSON ({error})") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the name {brief(key)} occurs twice")
            seen.add(key)
    return result


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _whole_number(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)
