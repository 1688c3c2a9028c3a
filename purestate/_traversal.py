"""Walking a module graph in PyTorch's order: who is visited, under which names, and when twice.

The graph may be a table of node numbers (a finished definition) or live objects (a model under
construction). Both are given as ``members(node, kind)``, the direct ``(name, token)`` pairs of a
node, where ``kind`` is ``"parameters"``, ``"buffers"`` or ``"modules"``. A token is a child node or
whatever stands for one array; equal tokens are the same thing under two names. Tokens are hashable;
None is an empty slot.

The rules are those of ``torch.nn.Module.named_modules`` and ``named_parameters``: depth first, a
node before its children, all of a node's own members before those of its children, duplicates by
identity.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any


Members = Callable[[Any, str], Iterable[tuple[str, Any]]]


def named_modules(
    members: Members,
    root: Any,
    prefix: str = "",
    remove_duplicate: bool = True,
    memo: set | None = None,
) -> Iterator[tuple[str, Any]]:
    """``(path, node)`` for the root and everything below it."""
    memo = set() if memo is None else memo
    if root in memo:
        return
    if remove_duplicate:
        memo.add(root)
    yield prefix, root
    for name, child in members(root, "modules"):
        if child is not None:
            path = f"{prefix}.{name}" if prefix else name
            yield from named_modules(members, child, path, remove_duplicate, memo)


def named_members(
    members: Members,
    root: Any,
    kind: str,
    prefix: str = "",
    recurse: bool = True,
    remove_duplicate: bool = True,
) -> Iterator[tuple[str, Any]]:
    """``(dotted name, token)`` of every parameter or buffer."""
    seen: set[Hashable] = set()
    if recurse:
        nodes = named_modules(members, root, prefix, remove_duplicate)
    else:
        nodes = iter([(prefix, root)])
    for path, node in nodes:
        for name, token in members(node, kind):
            if token is None or token in seen:
                continue
            if remove_duplicate:
                seen.add(token)
            yield (f"{path}.{name}" if path else name), token


def named_children(members: Members, root: Any) -> Iterator[tuple[str, Any]]:
    """The direct children that are set, each once."""
    seen: set[Hashable] = set()
    for name, child in members(root, "modules"):
        if child is not None and child not in seen:
            seen.add(child)
            yield name, child
