"""Tables for people, of text that strangers wrote.

A file's names and texts may contain what drives a terminal or what looks like markup; everything
printed goes through :func:`harmless`. On a terminal, tables fold to its width. Elsewhere lines stay
whole, so that ``grep`` finds names, and rich, which takes a while to import, is not needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence


def harmless(text: str) -> str:
    """Return text with nothing in it that a terminal obeys, or that it has no letters for."""
    if text.isprintable() and text.isascii():
        return text
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def line(text: str) -> None:
    """Print one line."""
    print(harmless(text))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print a table.

    Args:
        headings: The columns.
        rows: A cell for each column.
        right: The columns that hold numbers.
    """
    cells = [[harmless(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _fold(headings, cells, right)
        return
    lines = [list(headings), *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    turned = [str.rjust if heading in right else str.ljust for heading in headings]
    for row in lines:
        padded = [turn(cell, width) for turn, cell, width in zip(turned, row, widths, strict=True)]
        print(" ".join(padded).rstrip())


def _fold(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False)
    for heading in headings:
        grid.add_column(heading, overflow="fold", justify="right" if heading in right else "left")
    for row in rows:
        grid.add_row(*map(Text, row))
    Console().print(grid)


def count(number: int, noun: str) -> str:
    """Return "1 tensor", "2 tensors"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(nbytes: int) -> str:
    """Return "1.07 GB"."""
    amount = float(nbytes)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} GB"


def json_text(fields: dict[str, object]) -> str:
    """Return a JSON object as text with a line for each item of its lists and tables."""
    import json

    parts = []
    for key, value in fields.items():
        if isinstance(value, list) and value:
            items = ",\n    ".join(json.dumps(item, allow_nan=False) for item in value)
            text = f"[\n    {items}\n  ]"
        elif isinstance(value, dict) and value:
            pairs = [(json.dumps(k), json.dumps(v, allow_nan=False)) for k, v in value.items()]
            items = ",\n    ".join(f"{key}: {text}" for key, text in pairs)
            text = f"{{\n    {items}\n  }}"
        else:
            text = json.dumps(value, allow_nan=False)
        parts.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}"
