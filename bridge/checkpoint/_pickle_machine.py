"""A pickle reader that can only build data.

A pickle is a program for a small stack machine. Python's own machine lets that program import any
name and call it, which is why opening a pickle runs code. This one executes the same opcodes but
imports nothing and calls nothing by itself: names, calls, new objects, state and persistent ids
all go to a :class:`Vocabulary`, which decides what each means (`_globals.py` holds the strict one;
a lenient one would hand out inert placeholders instead of refusing a name).

Only opcodes that PyTorch's files contain are known. Lengths are checked against the bytes left
before anything is allocated, nesting has a limit, memo slots are never reserved, and dictionary
keys are plain values of bounded depth (hashing a million nested tuples overflows the C stack).
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Any, Protocol

from bridge.checkpoint._source import ByteReader
from bridge.checkpoint.errors import BadFormat, CheckpointError, Unsafe, Unsupported


MAX_DEPTH = 100
# Rebuilding a tensor inside the deepest container opens a few groups of its own.
_MAX_MARKS = MAX_DEPTH + 10
_MAX_NAME = 1024
_MAX_LONG = 4096
_MAX_KEY_DEPTH = 4


class Vocabulary(Protocol):
    """What the names in a pickle mean."""

    def find(self, module: str, name: str) -> object:
        """Return what the global ``module.name`` stands for, or raise."""
        ...

    def call(self, function: object, args: tuple[Any, ...]) -> object:
        """Return ``function(*args)`` for a ``function`` that :meth:`find` returned, or raise."""
        ...

    def new(self, cls: object, args: tuple[Any, ...]) -> object:
        """Return a new ``cls`` for a ``cls`` that :meth:`find` returned, or raise."""
        ...

    def build(self, instance: object, state: object) -> None:
        """Give ``instance`` its state, or raise."""
        ...

    def persistent(self, identity: object) -> object:
        """Return the object outside the pickle that ``identity`` names, or raise."""
        ...


def check_key(key: object, depth: int = 0) -> None:
    """Refuse a dictionary key or set item whose hash could be costly or could run code."""
    kind = type(key)
    if kind is int and not -(1 << 63) <= key < 1 << 64:  # pyright: ignore[reportOperatorIssue]
        raise Unsafe("a dictionary key is an integer beyond 64 bits")
    if kind in (str, int, float, bool, type(None), bytes):
        return
    if kind is tuple and depth < _MAX_KEY_DEPTH:
        for item in key:  # pyright: ignore[reportGeneralTypeIssues]
            check_key(item, depth + 1)
        return
    what = "a tuple nested too deep" if kind is tuple else f"a {kind.__name__}"
    raise Unsafe(f"a dictionary key must be text, a number, None or a tuple of these, not {what}")


class PickleMachine:
    """Run one pickle from ``reader``, which is left just after it."""

    def __init__(self, reader: ByteReader, vocabulary: Vocabulary) -> None:
        self._reader = reader
        self._vocabulary = vocabulary
        self._stack: list[Any] = []
        self._outer: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._start = reader.position

    def run(self) -> object:
        """Execute up to STOP and return the object."""
        reader = self._reader
        while True:
            offset = reader.position
            try:
                code = reader.byte()
                if code == _STOP:
                    result = self._pop()
                    if self._stack or self._outer:
                        raise BadFormat("the pickle ends with values left over")
                    return result
                operation = _OPERATIONS.get(code)
                if operation is None:
                    raise _unknown_opcode(code)
                operation(self)
            except CheckpointError as error:
                raise error.locate(offset=offset) from error.__cause__

    def _pop(self) -> Any:
        if not self._stack:
            raise BadFormat("the pickle takes a value from an empty stack")
        return self._stack.pop()

    def _top(self) -> Any:
        if not self._stack:
            raise BadFormat("the pickle takes a value from an empty stack")
        return self._stack[-1]

    def _pop_mark(self) -> list[Any]:
        if not self._outer:
            raise BadFormat("the pickle closes a group that it has not opened")
        items, self._stack = self._stack, self._outer.pop()
        return items

    def _number(self, layout: struct.Struct) -> Any:
        return layout.unpack(self._reader.take(layout.size))[0]

    def _proto(self) -> None:
        version = self._reader.byte()
        if version > 3:
            raise Unsupported(
                f"pickle protocol {version}; protocols 2 and 3 are read",
                advice="Save the file with torch.save and its default pickle_protocol",
            )

    def _mark(self) -> None:
        if len(self._outer) >= _MAX_MARKS:
            raise Unsafe(f"values are nested more than {MAX_DEPTH} deep")
        self._outer.append(self._stack)
        self._stack = []

    def _global(self) -> None:
        module, name = (self._text(self._reader.line(_MAX_NAME)) for _ in range(2))
        self._stack.append(self._vocabulary.find(module, name))

    def _reduce(self) -> None:
        args = self._arguments()
        self._stack.append(self._vocabulary.call(self._pop(), args))

    def _newobj(self) -> None:
        args = self._arguments()
        self._stack.append(self._vocabulary.new(self._pop(), args))

    def _arguments(self) -> tuple[Any, ...]:
        args = self._pop()
        if type(args) is not tuple:
            raise BadFormat(f"a call needs a tuple of arguments, not {type(args).__name__}")
        return args

    def _build(self) -> None:
        state = self._pop()
        self._vocabulary.build(self._top(), state)

    def _binpersid(self) -> None:
        self._stack.append(self._vocabulary.persistent(self._pop()))

    def _put(self, index: int) -> None:
        # A pickle of n bytes cannot have more than n slots; larger indices are made to hurt
        # readers that keep the memo in an array.
        if index > self._reader.position - self._start:
            raise Unsafe(f"memo slot {index} lies beyond anything the pickle has stored")
        self._memo[index] = self._top()

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise BadFormat(f"memo slot {index} is read before it is written")
        self._stack.append(self._memo[index])

    def _tuple(self) -> None:
        items = tuple(self._pop_mark())
        self._stack.append(items)

    def _short_tuple(self, count: int) -> None:
        items = [self._pop() for _ in range(count)]
        self._stack.append(tuple(reversed(items)))

    def _append(self) -> None:
        item = self._pop()
        self._list().append(item)

    def _appends(self) -> None:
        items = self._pop_mark()
        self._list().extend(items)

    def _list(self) -> list[Any]:
        target = self._top()
        if type(target) is not list:
            raise BadFormat(f"items are appended to a {type(target).__name__}, not a list")
        return target

    def _setitem(self) -> None:
        value = self._pop()
        self._set([self._pop(), value])

    def _setitems(self) -> None:
        self._set(self._pop_mark())

    def _set(self, items: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, dict):
            raise BadFormat(f"keys are set on a {type(target).__name__}, not a dictionary")
        if len(items) % 2:
            raise BadFormat("a dictionary is given a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                check_key(key)
            target[key] = value

    def _binunicode(self) -> None:
        self._stack.append(self._text(self._reader.take(self._number(_U32))))

    def _short_binstring(self) -> None:
        data = self._reader.take(self._reader.byte())
        try:
            self._stack.append(data.decode("utf-8"))
        except UnicodeDecodeError:
            # Python 2 wrote text and bytes alike with this opcode.
            self._stack.append(data)

    def _text(self, data: bytes) -> str:
        try:
            # Python writes lone surrogates this way; they are data, not damage.
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise BadFormat(f"text is not UTF-8 ({error.reason})") from error

    def _long(self, count: int) -> None:
        if count > _MAX_LONG:
            raise Unsafe(f"an integer of {count} bytes")
        self._stack.append(int.from_bytes(self._reader.take(count), "little", signed=True))

    def _long4(self) -> None:
        count = self._number(_I32)
        if count < 0:
            raise BadFormat("an integer of negative length")
        self._long(count)


def _unknown_opcode(code: int) -> CheckpointError:
    known = next((op for op in pickletools.opcodes if op.code == chr(code)), None)
    if known is None:
        return BadFormat(f"0x{code:02x} is no pickle opcode")
    return Unsupported(
        f"pickle opcode {known.name} (protocol {known.proto}), which torch.save does not write",
        advice="Save the file with torch.save and its default pickle_protocol",
    )


_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_F64 = struct.Struct(">d")
_STOP = ord(".")


def _push(make: Callable[[], object]) -> Callable[[PickleMachine], None]:
    def operation(machine: PickleMachine) -> None:
        machine._stack.append(make())

    return operation


_OPERATIONS: dict[int, Callable[[PickleMachine], None]] = {
    0x80: PickleMachine._proto,
    ord("c"): PickleMachine._global,
    ord("R"): PickleMachine._reduce,
    0x81: PickleMachine._newobj,
    ord("b"): PickleMachine._build,
    ord("Q"): PickleMachine._binpersid,
    ord("("): PickleMachine._mark,
    ord("q"): lambda m: m._put(m._reader.byte()),
    ord("r"): lambda m: m._put(m._number(_U32)),
    ord("h"): lambda m: m._get(m._reader.byte()),
    ord("j"): lambda m: m._get(m._number(_U32)),
    ord("t"): PickleMachine._tuple,
    0x85: lambda m: m._short_tuple(1),
    0x86: lambda m: m._short_tuple(2),
    0x87: lambda m: m._short_tuple(3),
    ord(")"): _push(tuple),
    ord("]"): _push(list),
    ord("}"): _push(dict),
    0x8F: _push(set),
    ord("N"): _push(lambda: None),
    0x88: _push(lambda: True),
    0x89: _push(lambda: False),
    ord("a"): PickleMachine._append,
    ord("e"): PickleMachine._appends,
    ord("s"): PickleMachine._setitem,
    ord("u"): PickleMachine._setitems,
    ord("X"): PickleMachine._binunicode,
    ord("U"): PickleMachine._short_binstring,
    ord("J"): lambda m: m._stack.append(m._number(_I32)),
    ord("K"): lambda m: m._stack.append(m._reader.byte()),
    ord("M"): lambda m: m._stack.append(m._number(_U16)),
    ord("G"): lambda m: m._stack.append(m._number(_F64)),
    0x8A: lambda m: m._long(m._reader.byte()),
    0x8B: PickleMachine._long4,
}
