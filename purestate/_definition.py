"""The definition: everything about a model that is not an array, as one interned value.

A model is ``leaves`` (a flat tuple of arrays) plus a :class:`Definition`. The definition holds the
module tree as a table of :class:`Node`: a shared module is one node that two slots point to, a tied
parameter is one leaf number under two names, so no transform of the leaves can split either.

Equal definitions are ONE object. JAX keys its compiled programs by the auxiliary data of a pytree;
when that is the very object it saw before, a cached call compares nothing and hashes nothing.
Interning happens in :func:`intern`, the only way to make a definition: copies, pickles and threads
all come back through it.
"""

import functools
import threading
import weakref
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import jax

from purestate._attributes import Attribute, references, renumber
from purestate._computed import Computed
from purestate._traversal import named_modules


class Leaf(NamedTuple):
    """What one array is, whatever its value.

    Attributes:
        trainable: ``requires_grad`` of the parameter; False for buffers.
        stored_dtype: The 64-bit dtype that JAX narrowed, written again on export; None otherwise.
    """

    trainable: bool
    stored_dtype: str | None = None


class Member(NamedTuple):
    """How a name of a node is looked up: a kind, and the leaf, node or attribute it stands for."""

    kind: str
    target: Any


class Node:
    """One module of the tree. Numbers point into the definition's ``nodes`` and ``leaves``.

    Attributes:
        cls: The user's class.
        parameters: ``(name, leaf or None)`` in registration order.
        buffers: ``(name, leaf or None, persistent)`` in registration order.
        modules: ``(name, node or None)`` in registration order.
        attributes: The plain attributes.
        training: The mode flag.
        hooks: The hooks, in the order they run (``purestate._hooks.Hook``).
        registered: The number of the last hook that was ever registered here; 0 for none.
    """

    __slots__ = (
        "attributes",
        "buffers",
        "cls",
        "direct",
        "hooks",
        "key",
        "lookup",
        "modules",
        "parameters",
        "plain",
        "registered",
        "training",
    )

    def __init__(
        self,
        cls: type,
        parameters: tuple[tuple[str, int | None], ...],
        buffers: tuple[tuple[str, int | None, bool], ...],
        modules: tuple[tuple[str, int | None], ...],
        attributes: tuple[Attribute, ...],
        training: bool,
        hooks: tuple[Any, ...] = (),
        registered: int = 0,
    ):
        self.cls = cls
        self.parameters = parameters
        self.buffers = buffers
        self.modules = modules
        self.attributes = attributes
        self.training = training
        self.hooks = hooks
        self.registered = registered
        keys = tuple((a.name, a.key, tuple(references(a.value))) for a in attributes)
        self.key: Hashable = (cls, parameters, buffers, modules, keys, training, hooks, registered)
        # What a running view holds in its own __dict__, where Python finds it fastest.
        self.plain = {
            a.name: a.value for a in attributes if not (a.refers or isinstance(a.value, Computed))
        } | {"training": training}
        # Later entries win, in the order of torch's own look-up: attributes, parameters, buffers,
        # modules.
        self.lookup: dict[str, Member] = {
            **{name: Member("module", child) for name, child in modules},
            **{name: Member("buffer", leaf) for name, leaf, _ in buffers},
            **{name: Member("parameter", leaf) for name, leaf in parameters},
            **{
                a.name: Member("computed" if isinstance(a.value, Computed) else "attribute", a)
                for a in attributes
            },
            "training": Member("training", training),
        }
        # The parameters that a running view may hold likewise: those that nothing else hides.
        self.direct = tuple(
            (name, leaf)
            for name, leaf in parameters
            if leaf is not None and self.lookup[name].kind == "parameter" and not hasattr(cls, name)
        )

    def members(self, kind: str) -> tuple[tuple[str, Any], ...]:
        """The direct ``(name, number)`` pairs of one kind, for ``purestate._traversal``."""
        if kind == "parameters":
            return self.parameters
        if kind == "modules":
            return self.modules
        return tuple((name, leaf) for name, leaf, _ in self.buffers)

    def __reduce__(self):
        fields = (
            self.cls,
            self.parameters,
            self.buffers,
            self.modules,
            self.attributes,
            self.training,
            self.hooks,
            self.registered,
        )
        return (Node, fields)


class Entry(NamedTuple):
    """One name of one array, in ``state_dict`` order: ties and shared modules appear once a name."""

    name: str
    leaf: int
    kind: str
    persistent: bool


class Definition:
    """The immutable, hashable structure of a model. Compared by identity: equal ones are one object.

    Not built directly: a finished model has one (``purestate.split(model)`` gives it), and every
    function of ``bridge`` that changes structure only takes it and returns another.

    Attributes:
        nodes: The module tree; node 0 is the root.
        leaves: What each array is, in the order of the model's leaves.
        cls: The class of the root.
    """

    # Slots for what every unflattening reads; the rest is worked out once and cached.
    __slots__ = ("__dict__", "__weakref__", "cls", "leaves", "nodes", "shadowing")

    def __init__(self, nodes: tuple[Node, ...], leaves: tuple[Leaf, ...]):
        self.nodes = nodes
        self.leaves = leaves
        self.cls = nodes[0].cls
        # Attributes that hide one of their class must be set on each instance; the others are found
        # through __getattr__ at no cost to flattening.
        self.shadowing = tuple(
            a
            for a in nodes[0].attributes
            if hasattr(self.cls, a.name) and not isinstance(a.value, Computed)
        )

    def members(self, node: int, kind: str) -> tuple[tuple[str, Any], ...]:
        """The direct members of a node, for ``purestate._traversal``."""
        return self.nodes[node].members(kind)

    @functools.cached_property
    def paths(self) -> tuple[tuple[str, int], ...]:
        """Every ``(dotted path, node)``, a shared module under each of its paths."""
        return tuple(named_modules(self.members, 0, remove_duplicate=False))

    @functools.cached_property
    def path_of(self) -> dict[int, str]:
        """The first path of each node."""
        return {node: path for path, node in named_modules(self.members, 0)}

    @functools.cached_property
    def node_at(self) -> dict[str, int]:
        """The node of each path."""
        return dict(self.paths)

    @functools.cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every name of every array, in ``state_dict`` order."""
        return tuple(self._entries())

    def _entries(self) -> Iterator[Entry]:
        for path, index in self.paths:
            prefix = f"{path}." if path else ""
            node = self.nodes[index]
            for name, leaf in node.parameters:
                if leaf is not None:
                    yield Entry(prefix + name, leaf, "parameter", True)
            for name, leaf, persistent in node.buffers:
                if leaf is not None:
                    yield Entry(prefix + name, leaf, "buffer", persistent)

    @functools.cached_property
    def leaf_at(self) -> dict[str, int]:
        """The leaf of each name, aliases included."""
        return {entry.name: entry.leaf for entry in self.entries}

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The first name of each leaf in leaf order; its parameter name where it is a parameter."""
        first: dict[int, str] = {}
        for entry in sorted(self.entries, key=lambda entry: entry.kind != "parameter"):
            first.setdefault(entry.leaf, entry.name)
        return tuple(first[leaf] for leaf in range(len(self.leaves)))

    @functools.cached_property
    def key_paths(self) -> tuple[Any, ...]:
        """The dotted names as JAX key path entries."""
        return tuple(jax.tree_util.GetAttrKey(name) for name in self.names)

    @functools.cached_property
    def direct(self) -> frozenset[int]:
        """The leaves that running views hold as plain attributes."""
        return frozenset(leaf for node in self.nodes for _, leaf in node.direct)

    @functools.cached_property
    def is_hooked(self) -> bool:
        """Whether a call runs hooks."""
        kinds = ("forward_pre", "forward", "backward_pre", "backward")
        return any(hook.kind in kinds for node in self.nodes for hook in node.hooks)

    @functools.cached_property
    def trainable(self) -> tuple[int, ...]:
        """The leaves that train, which are parameters with ``requires_grad``."""
        return tuple(i for i, leaf in enumerate(self.leaves) if leaf.trainable)

    @functools.cached_property
    def held(self) -> tuple[int, ...]:
        """The leaves that do not, which are buffers and frozen parameters."""
        return tuple(i for i, leaf in enumerate(self.leaves) if not leaf.trainable)

    @functools.cached_property
    def is_closed(self) -> bool:
        """Whether no attribute refers to a part of a larger model that this one was taken from."""
        referring = (a for node in self.nodes for a in node.attributes if a.refers)
        return all(ref[0] is not None for a in referring for ref in references(a.value))

    @functools.cached_property
    def _submodules(self) -> dict[int, "Submodule"]:
        return {}

    def submodule(self, node: int) -> "Submodule":
        """One node as a model of its own."""
        if node not in self._submodules:
            self._submodules[node] = self._extract(node)
        return self._submodules[node]

    def _extract(self, root: int) -> "Submodule":
        order = [node for _, node in named_modules(self.members, root)]
        nodes = {old: new for new, old in enumerate(order)}
        leaves: dict[int, int] = {}
        for old in order:
            for kind in ("parameters", "buffers"):
                for _, leaf in self.members(old, kind):
                    if leaf is not None:
                        leaves.setdefault(leaf, len(leaves))
        table = tuple(self._renumbered(self.nodes[old], nodes, leaves) for old in order)
        definition = intern(table, tuple(self.leaves[leaf] for leaf in leaves))
        return Submodule(definition, tuple(leaves), tuple(order))

    @staticmethod
    def _renumbered(node: Node, nodes: dict[int, int], leaves: dict[int, int]) -> Node:
        def number(table, old):
            return None if old is None else table[old]

        return Node(
            node.cls,
            tuple((name, number(leaves, leaf)) for name, leaf in node.parameters),
            tuple((name, number(leaves, leaf), keep) for name, leaf, keep in node.buffers),
            tuple((name, number(nodes, child)) for name, child in node.modules),
            tuple(
                a._replace(value=renumber(a.value, nodes, leaves)) if a.refers else a
                for a in node.attributes
            ),
            node.training,
            node.hooks,
            node.registered,
        )

    def __repr__(self) -> str:
        return (
            f"<Definition of {self.cls.__name__}: {len(self.nodes)} modules, "
            f"{len(self.leaves)} arrays, {len(self.trainable)} trainable>"
        )

    def __reduce__(self):
        return (intern, (self.nodes, self.leaves))

    def __copy__(self) -> "Definition":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Definition":
        del memo
        return self


class Submodule(NamedTuple):
    """A node of a definition as a definition of its own, and where its parts are in the whole."""

    definition: Definition
    leaves: tuple[int, ...]
    nodes: tuple[int, ...]


_interned: weakref.WeakValueDictionary[Hashable, Definition] = weakref.WeakValueDictionary()
# Keys are compared under the lock, by what users' attributes do when they are compared.
_lock = threading.RLock()


def intern(nodes: tuple[Node, ...], leaves: tuple[Leaf, ...]) -> Definition:
    """The one definition with these nodes and leaves."""
    key = (tuple(node.key for node in nodes), leaves)
    with _lock:
        known = _interned.get(key)
        return _interned.setdefault(key, Definition(nodes, leaves)) if known is None else known


# What jax.tree_util.register_static does, in one Python frame instead of three.
jax.tree_util.register_pytree_node(
    Definition, lambda definition: ((), definition), lambda definition, _: definition
)
