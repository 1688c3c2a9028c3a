"""A pickle reader that can only build data.

A pickle is a program for a small stack machine. Python's own machine lets that program import any
name and call it, which is why opening a pickle runs code. This one executes the same opcodes but
imports nothing and calls nothing by itself: names, calls, new objects, state and persistent ids
all go to a :class:`Vocabulary`, which decides what each means.

The opcodes known are those that Python's picklers write from protocol 2 on. Lengths are checked
against the bytes left before anything is allocated, nesting has a limit, memo slots are never
reserved, and dictionary keys are plain values (`_keys.py`).

A checkpoint of 20,000 tensors is some 640,000 opcodes, so the loop keeps its state in local
variables and executes the fifteen opcodes that tensors are made of in place; the others are the
methods in the table at the end, which find the same state in the machine.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Any, Protocol

from bridge.checkpoint._keys import check_key
from bridge.checkpoint._records import Placeholder
from bridge.checkpoint.errors import BadFormat, CheckpointError, Truncated, Unsafe, Unsupported


MAX_DEPTH = 100
# Rebuilding a tensor inside the deepest container opens a few groups of its own.
_MAX_MARKS = MAX_DEPTH + 10
_MAX_NAME = 1024
# Python shows no integer of more than 4300 digits (1785 bytes), and sums and products of these appear
# in messages.
_MAX_LONG = 1024
_MAX_PROTOCOL = 5

_U16 = struct.Struct("<H").unpack_from
_U32 = struct.Struct("<I").unpack_from
_U64 = struct.Struct("<Q").unpack_from
_I32 = struct.Struct("<i").unpack_from
_F64 = struct.Struct(">d").unpack_from


class Vocabulary(Protocol):
    """What the names in a pickle mean."""

    def find(self, module: str, name: str) -> object:
        """Return what the global ``module.name`` stands for, or raise."""
        ...

    def call(self, function: object, args: tuple[Any, ...]) -> object:
        """Return ``function(*args)`` for a ``function`` that :meth:`find` returned, or raise."""
        ...

    def new(self, cls: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Return a new ``cls`` for a ``cls`` that :meth:`find` returned, or raise."""
        ...

    def build(self, instance: object, state: object) -> None:
        """Give ``instance`` its state, or raise."""
        ...

    def persistent(self, identity: object) -> object:
        """Return the object outside the pickle that ``identity`` names, or raise."""
        ...


class PickleMachine:
    """Run one pickle.

    Args:
        data: Bytes that start with the pickle.
        vocabulary: What its names mean.
        origin: Where ``data`` lies in the file or record, for messages.

    Attributes:
        at: After :meth:`run`, how many bytes of ``data`` the pickle took.
    """

    def __init__(self, data: bytes, vocabulary: Vocabulary, *, origin: int = 0) -> None:
        self.at = 0
        self._data = data
        self._vocabulary = vocabulary
        self._origin = origin
        self._stack: list[Any] = []
        self._outer: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> object:
        """Execute up to STOP and return the object."""
        try:
            return self._run()
        except CheckpointError as error:
            raise error.locate(offset=self._origin + self.at) from error.__cause__

    def _run(self) -> object:
        data, memo, size = self._data, self._memo, len(self._data)
        call, persistent = self._vocabulary.call, self._vocabulary.persistent
        stack, at, start = self._stack, 0, 0
        try:
            while True:
                start = at
                code = data[at]
                at += 1
                if code == 0x72:  # LONG_BINPUT
                    # A pickle of n bytes cannot have more than n slots; larger indices are made
                    # to hurt readers that keep the memo in an array.
                    if (index := _U32(data, at)[0]) > at:
                        raise _slot_beyond(index)
                    memo[index] = stack[-1]
                    at += 4
                elif code == 0x68:  # BINGET
                    stack.append(memo[data[at]])
                    at += 1
                elif code == 0x4B:  # BININT1
                    stack.append(data[at])
                    at += 1
                elif code == 0x4D:  # BININT2
                    stack.append(_U16(data, at)[0])
                    at += 2
                elif code == 0x28:  # MARK
                    if len(self._outer) >= _MAX_MARKS:
                        raise Unsafe(f"values are nested more than {MAX_DEPTH} deep")
                    self._outer.append(stack)
                    stack = self._stack = []
                elif code == 0x74:  # TUPLE
                    items = tuple(stack)
                    stack = self._stack = self._outer.pop()
                    stack.append(items)
                elif code == 0x58:  # BINUNICODE
                    end = at + 4 + _U32(data, at)[0]
                    if end > size:
                        raise _truncated(end - at - 4, size - at - 4)
                    stack.append(str(data[at + 4 : end], "utf-8", "surrogatepass"))
                    at = end
                elif code == 0x52:  # REDUCE
                    args = stack.pop()
                    if type(args) is not tuple:
                        raise _not_arguments(args)
                    stack[-1] = call(stack[-1], args)
                elif code == 0x71:  # BINPUT
                    memo[data[at]] = stack[-1]
                    at += 1
                elif code == 0x51:  # BINPERSID
                    stack[-1] = persistent(stack[-1])
                elif code == 0x86:  # TUPLE2
                    last = stack.pop()
                    stack[-1] = (stack[-1], last)
                elif code == 0x85:  # TUPLE1
                    stack[-1] = (stack[-1],)
                elif code == 0x29:  # EMPTY_TUPLE
                    stack.append(())
                elif code == 0x89:  # NEWFALSE
                    stack.append(False)
                elif code == 0x6A:  # LONG_BINGET
                    stack.append(memo[_U32(data, at)[0]])
                    at += 4
                elif code == 0x2E:  # STOP
                    result = stack.pop()
                    if stack or self._outer:
                        raise BadFormat("the pickle ends with values left over")
                    start = at
                    return result
                else:
                    operation = _OPERATIONS.get(code)
                    if operation is None:
                        raise _unknown_opcode(code)
                    self.at = at
                    operation(self)
                    stack, at = self._stack, self.at
        except KeyError as error:
            raise BadFormat(f"memo slot {error.args[0]} is read before it is written") from None
        except UnicodeDecodeError as error:
            raise BadFormat(f"text is not UTF-8 ({error.reason})") from error
        except (IndexError, struct.error):
            if at >= size or data[start] in _TAKES_NUMBER:
                raise _truncated(1, 0) from None
            raise _empty_stack(data[start]) from None
        finally:
            self.at = start

    def _take(self, count: int) -> bytes:
        left = len(self._data) - self.at
        if count > left:
            raise _truncated(count, left)
        self.at += count
        return self._data[self.at - count : self.at]

    def _number(self, unpack: Callable[[bytes, int], tuple[Any, ...]], count: int) -> Any:
        return unpack(self._take(count), 0)[0]

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _pop_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._outer.pop()
        return items

    def _proto(self) -> None:
        version = self._take(1)[0]
        if version > _MAX_PROTOCOL:
            raise Unsupported(f"pickle protocol {version}; protocols 2 to {_MAX_PROTOCOL} are read")

    def _frame(self) -> None:
        # A hint for reading ahead, which needs no heed where all is in memory.
        count, left = self._number(_U64, 8), len(self._data) - self.at
        if count > left:
            raise _truncated(count, left)

    def _global(self) -> None:
        self._push(self._vocabulary.find(self._line(), self._line()))

    def _line(self) -> str:
        stop = self._data.find(b"\n", self.at, self.at + _MAX_NAME + 1)
        if stop < 0:
            raise Truncated(f"no line end within {_MAX_NAME} bytes")
        line = self._data[self.at : stop]
        self.at = stop + 1
        return str(line, "utf-8", "surrogatepass")

    def _stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if type(module) is not str or type(name) is not str or len(module) + len(name) > _MAX_NAME:
            raise BadFormat("a global must be named by a module and a name")
        self._push(self._vocabulary.find(module, name))

    def _newobj(self) -> None:
        args, cls = self._stack.pop(), self._stack.pop()
        if type(args) is not tuple:
            raise _not_arguments(args)
        self._push(self._vocabulary.new(cls, args, {}))

    def _newobj_ex(self) -> None:
        kwargs, args, cls = (self._stack.pop() for _ in range(3))
        if type(args) is not tuple:
            raise _not_arguments(args)
        if type(kwargs) is not dict or any(type(key) is not str for key in kwargs):
            raise BadFormat("a call needs named arguments in a dictionary")
        self._push(self._vocabulary.new(cls, args, kwargs))

    def _build(self) -> None:
        state = self._stack.pop()
        self._vocabulary.build(self._stack[-1], state)

    def _memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _triple(self) -> None:
        last, middle, first = (self._stack.pop() for _ in range(3))
        self._push((first, middle, last))

    def _append(self) -> None:
        item = self._stack.pop()
        self._extend([item])

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, Placeholder):
            target.items.extend(items)
        elif isinstance(target, list):
            target.extend(items)
        else:
            raise BadFormat(f"items are appended to a {type(target).__name__}, not a list")

    def _add_items(self) -> None:
        items = self._pop_mark()
        if type(self._stack[-1]) is not set:
            raise BadFormat(f"items are added to a {type(self._stack[-1]).__name__}, not a set")
        self._stack[-1].update(_checked(items))

    def _setitem(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set([key, value])

    def _set(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, Placeholder):
            target = target.entries
        if not isinstance(target, dict):
            raise BadFormat(f"keys are set on a {type(target).__name__}, not a dictionary")
        if len(items) % 2:
            raise BadFormat("a dictionary is given a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                check_key(key)
            target[key] = value

    def _text(self, count: int) -> None:
        self._push(str(self._take(count), "utf-8", "surrogatepass"))

    def _string(self, count: int) -> None:
        data = self._take(count)
        try:
            self._push(data.decode("utf-8"))
        except UnicodeDecodeError:
            # Python 2 wrote text and bytes alike with this opcode.
            self._push(data)

    def _long(self, count: int) -> None:
        if count > _MAX_LONG:
            raise Unsafe(f"an integer of {count} bytes")
        self._push(int.from_bytes(self._take(count), "little", signed=True))


def _checked(items: list[Any]) -> list[Any]:
    for item in items:
        check_key(item)
    return items


def _natural(count: int) -> int:
    if count < 0:
        raise BadFormat("an integer or text of negative length")
    return count


def _truncated(needed: int, left: int) -> Truncated:
    return Truncated(
        f"{needed} bytes are needed here, but {max(left, 0)} are left",
        advice="The download or copy is probably incomplete: fetch the file again",
    )


def _slot_beyond(index: int) -> Unsafe:
    return Unsafe(f"memo slot {index} lies beyond anything the pickle has stored")


def _not_arguments(args: object) -> BadFormat:
    return BadFormat(f"a call needs a tuple of arguments, not {type(args).__name__}")


def _empty_stack(code: int) -> BadFormat:
    if code in _CLOSES_GROUP:
        return BadFormat("the pickle closes a group that it has not opened")
    return BadFormat("the pickle takes a value from an empty stack")


def _unknown_opcode(code: int) -> CheckpointError:
    known = next((op for op in pickletools.opcodes if op.code == chr(code)), None)
    if known is None:
        return BadFormat(f"0x{code:02x} is no pickle opcode")
    return Unsupported(
        f"pickle opcode {known.name} (protocol {known.proto}), which torch.save does not write",
        advice="Save the file with torch.save and its default pickle_protocol",
    )


_OPERATIONS: dict[int, Callable[[PickleMachine], None]] = {
    0x80: PickleMachine._proto,
    0x95: PickleMachine._frame,
    ord("c"): PickleMachine._global,
    0x93: PickleMachine._stack_global,
    0x81: PickleMachine._newobj,
    0x92: PickleMachine._newobj_ex,
    ord("b"): PickleMachine._build,
    0x94: PickleMachine._memoize,
    ord("0"): lambda m: (m._stack.pop(), None)[1],
    ord("1"): lambda m: (m._pop_mark(), None)[1],
    0x87: PickleMachine._triple,
    ord("]"): lambda m: m._push([]),
    ord("}"): lambda m: m._push({}),
    0x8F: lambda m: m._push(set()),
    0x91: lambda m: m._push(frozenset(_checked(m._pop_mark()))),
    ord("N"): lambda m: m._push(None),
    0x88: lambda m: m._push(True),
    ord("a"): PickleMachine._append,
    ord("e"): lambda m: m._extend(m._pop_mark()),
    ord("s"): PickleMachine._setitem,
    ord("u"): lambda m: m._set(m._pop_mark()),
    0x90: PickleMachine._add_items,
    0x8C: lambda m: m._text(m._take(1)[0]),
    0x8D: lambda m: m._text(m._number(_U64, 8)),
    ord("U"): lambda m: m._string(m._take(1)[0]),
    ord("T"): lambda m: m._string(_natural(m._number(_I32, 4))),
    ord("C"): lambda m: m._push(m._take(m._take(1)[0])),
    ord("B"): lambda m: m._push(m._take(m._number(_U32, 4))),
    0x8E: lambda m: m._push(m._take(m._number(_U64, 8))),
    0x96: lambda m: m._push(bytearray(m._take(m._number(_U64, 8)))),
    ord("J"): lambda m: m._push(m._number(_I32, 4)),
    ord("G"): lambda m: m._push(m._number(_F64, 8)),
    0x8A: lambda m: m._long(m._take(1)[0]),
    0x8B: lambda m: m._long(_natural(m._number(_I32, 4))),
}

_CLOSES_GROUP = frozenset(b"teu1\x90\x91")
_TAKES_NUMBER = frozenset(b"MXrj")
