"""Assignment, registration and deletion in a constructor: the same script on torch and here.

Each script runs inside the constructor of a module; what it raises (type and text) and what the
module then holds must be the same on both sides, while it is built and when it is finished.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from purestate import FrozenModelError
from tests.differential.sides import OURS, SIDES, TORCH, construct, outcome, plain, registries


NAMES = ("x", "y", "z", "taken", "forward_like", "training")

SCRIPTS: list[Any] = []


def script(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Add a function to the table."""
    SCRIPTS.append(pytest.param(function, id=function.__name__))
    return function


def param(side, value=1.0):
    return side.nn.Parameter(side.array([value, 2.0]))


def buffer(side, value=3.0, persistent=True):
    return side.nn.Buffer(side.array([value, 4.0]), persistent=persistent)


def linear(side):
    return side.nn.ReLU()


# A name that holds a parameter stays a parameter's.


@script
def a_parameter_then_none_then_parameter(side, m):
    m.x = param(side)
    m.y = param(side, 5.0)
    m.x = None
    m.x = param(side, 6.0)


@script
def a_parameter_slot_refuses_an_array(side, m):
    m.x = param(side)
    m.x = side.array([1.0])


@script
def a_parameter_slot_refuses_a_number(side, m):
    m.x = param(side)
    m.x = 3


@script
def a_parameter_slot_refuses_a_module(side, m):
    m.x = param(side)
    m.x = linear(side)


@script
def a_parameter_slot_refuses_a_buffer(side, m):
    m.x = param(side)
    m.x = buffer(side)


@script
def a_parameter_slot_set_to_none_still_refuses_an_array(side, m):
    m.x = param(side)
    m.x = None
    m.x = side.array([1.0])


@script
def a_registered_none_parameter_refuses_a_string(side, m):
    m.register_parameter("x", None)
    m.x = "text"


@script
def a_parameter_slot_refuses_arithmetic_on_it(side, m):
    m.x = param(side)
    m.x = m.x * 2


@script
def a_parameter_replaced_keeps_its_place(side, m):
    m.x = param(side)
    m.y = param(side)
    m.x = param(side, 7.0)


@script
def a_parameter_deleted_and_assigned_goes_last(side, m):
    m.x = param(side)
    m.y = param(side)
    del m.x
    m.x = param(side, 8.0)


# A name that holds a child.


@script
def a_child_slot_takes_none_and_a_module_again(side, m):
    m.x = linear(side)
    m.y = linear(side)
    m.x = None
    m.x = side.nn.Tanh()


@script
def a_child_slot_refuses_an_array(side, m):
    m.x = linear(side)
    m.x = side.array([1.0])


@script
def a_child_slot_refuses_a_number(side, m):
    m.x = linear(side)
    m.x = 3


@script
def a_child_slot_refuses_a_buffer(side, m):
    m.x = linear(side)
    m.x = buffer(side)


@script
def a_child_slot_set_to_none_still_refuses_a_list(side, m):
    m.x = linear(side)
    m.x = None
    m.x = []


@script
def a_child_becomes_a_parameter(side, m):
    m.x = linear(side)
    m.y = linear(side)
    m.x = param(side)


@script
def a_child_set_to_none_becomes_a_parameter(side, m):
    m.x = linear(side)
    m.x = None
    m.x = param(side)


@script
def a_child_over_a_number(side, m):
    m.x = 3
    m.x = linear(side)


@script
def a_child_over_a_class_attribute_is_registered_and_hidden(side, m):
    m.taken = linear(side)


@script
def a_child_named_as_a_method_is_registered_and_hidden(side, m):
    m.forward = linear(side)


@script
def a_child_replaced_keeps_its_place(side, m):
    m.x = linear(side)
    m.y = linear(side)
    m.x = side.nn.Tanh()


@script
def a_child_deleted_and_assigned_goes_last(side, m):
    m.x = linear(side)
    m.y = linear(side)
    del m.x
    m.x = side.nn.Tanh()


# A name that holds a buffer.


@script
def a_buffer_slot_refuses_a_number(side, m):
    m.register_buffer("x", side.array([1.0]))
    m.x = 3


@script
def a_buffer_slot_refuses_a_list(side, m):
    m.x = buffer(side)
    m.x = [1.0]


@script
def a_buffer_object_is_registered(side, m):
    m.x = buffer(side)
    m.y = buffer(side, persistent=False)


@script
def an_array_keeps_the_persistence_of_a_buffer(side, m):
    m.register_buffer("x", side.array([1.0]), persistent=False)
    m.register_buffer("y", side.array([1.0]))
    m.x = side.array([2.0])
    m.y = side.array([3.0])


@script
def a_buffer_object_brings_its_own_persistence(side, m):
    m.register_buffer("x", side.array([1.0]), persistent=False)
    m.register_buffer("y", side.array([1.0]))
    m.x = buffer(side, persistent=True)
    m.y = buffer(side, persistent=False)


@script
def none_keeps_a_buffers_slot_and_persistence(side, m):
    m.register_buffer("x", side.array([1.0]), persistent=False)
    m.x = None
    m.x = side.array([2.0])


@script
def none_in_a_buffers_slot_still_refuses_a_number(side, m):
    m.register_buffer("x", None)
    m.x = 3


@script
def a_buffer_becomes_a_parameter_and_loses_its_flag(side, m):
    m.register_buffer("x", side.array([1.0]), persistent=False)
    m.x = param(side)


@script
def a_buffer_becomes_a_child_and_loses_its_flag(side, m):
    m.register_buffer("x", side.array([1.0]), persistent=False)
    m.x = linear(side)


@script
def a_buffer_that_became_a_child_does_not_come_back(side, m):
    m.register_buffer("x", side.array([1.0]))
    m.x = linear(side)
    m.x = side.array([1.0])


@script
def a_buffer_replaced_keeps_its_place(side, m):
    m.register_buffer("x", side.array([1.0]))
    m.register_buffer("y", side.array([2.0]))
    m.x = side.array([3.0, 4.0])


@script
def a_buffer_deleted_and_assigned_is_a_plain_array(side, m):
    m.register_buffer("x", side.array([1.0]), persistent=False)
    m.register_buffer("y", side.array([2.0]))
    del m.x
    m.x = side.array([3.0])


@script
def a_buffer_deleted_loses_its_flag(side, m):
    m.register_buffer("x", side.array([1.0]), persistent=False)
    del m.x
    m.register_buffer("x", side.array([2.0]))


# Plain attributes.


@script
def a_plain_array_is_not_state(side, m):
    m.x = side.array([1.0])
    m.x = side.array([2.0])


@script
def a_plain_array_blocks_register_buffer(side, m):
    m.x = side.array([1.0])
    m.register_buffer("x", side.array([2.0]))


@script
def a_plain_array_blocks_a_buffer_object(side, m):
    m.x = side.array([1.0])
    m.x = buffer(side)


@script
def a_plain_array_becomes_a_parameter(side, m):
    m.x = side.array([1.0])
    m.x = param(side)


@script
def a_plain_array_becomes_a_child(side, m):
    m.x = side.array([1.0])
    m.x = linear(side)


@script
def a_number_becomes_a_parameter(side, m):
    m.x = 3
    m.x = param(side)


@script
def a_number_becomes_another(side, m):
    m.x = 3
    m.x = "text"
    m.taken = 8


@script
def a_class_attribute_blocks_a_parameter(side, m):
    m.taken = param(side)


@script
def a_class_attribute_blocks_a_buffer_object(side, m):
    m.taken = buffer(side)


@script
def a_class_attribute_is_hidden_by_a_plain_array(side, m):
    m.taken = side.array([1.0])


@script
def lists_and_dicts_of_modules_are_not_registered(side, m):
    m.x = [linear(side), side.nn.Tanh()]
    m.y = {"a": linear(side)}
    m.z = (linear(side),)


# The same object under two names.


@script
def one_parameter_under_two_names_is_a_tie(side, m):
    m.x = param(side)
    m.y = m.x
    assert len(list(m.parameters())) == 1
    assert len(list(m.named_parameters(remove_duplicate=False))) == 2


@script
def a_buffer_object_registers_under_a_second_name(side, m):
    m.x = buffer(side, persistent=False)
    m.y = m.x
    assert len(list(m.buffers())) == 1


@script
def a_registered_array_is_plain_under_a_second_name(side, m):
    m.register_buffer("x", side.array([1.0]))
    m.y = m.x


@script
def one_array_registered_as_two_buffers_is_a_tie(side, m):
    value = side.array([1.0])
    m.register_buffer("x", value)
    m.register_buffer("y", value)
    assert len(list(m.buffers())) == 1


@script
def one_module_under_two_names(side, m):
    m.x = linear(side)
    m.y = m.x
    assert m.x is m.y


# register_parameter.


@script
def register_parameter_twice_replaces(side, m):
    m.register_parameter("x", param(side))
    m.register_parameter("y", None)
    m.register_parameter("x", param(side, 9.0))
    m.register_parameter("y", param(side))


@script
def register_parameter_wants_a_string(side, m):
    m.register_parameter(3, param(side))


@script
def register_parameter_wants_a_string_before_a_parameter(side, m):
    m.register_parameter(None, 3)


@script
def register_parameter_refuses_a_dot(side, m):
    m.register_parameter("a.b", param(side))


@script
def register_parameter_refuses_an_empty_name(side, m):
    m.register_parameter("", param(side))


@script
def register_parameter_refuses_a_taken_name(side, m):
    m.x = 3
    m.register_parameter("x", param(side))


@script
def register_parameter_refuses_a_method(side, m):
    m.register_parameter("forward", param(side))


@script
def register_parameter_refuses_a_buffers_name_before_the_type(side, m):
    m.register_buffer("x", side.array([1.0]))
    m.register_parameter("x", 3)


@script
def register_parameter_refuses_a_childs_name(side, m):
    m.x = linear(side)
    m.register_parameter("x", None)


@script
def register_parameter_refuses_an_array(side, m):
    m.register_parameter("x", side.array([1.0]))


@script
def register_parameter_refuses_arithmetic(side, m):
    m.register_parameter("x", param(side) * 2)


@script
def register_parameter_refuses_a_number(side, m):
    m.register_parameter("x", 3)


@script
def register_parameter_refuses_a_module(side, m):
    m.register_parameter("x", linear(side))


# register_buffer.


@script
def register_buffer_twice_replaces_value_and_flag(side, m):
    m.register_buffer("x", side.array([1.0]), persistent=False)
    m.register_buffer("y", side.array([1.0]))
    m.register_buffer("x", side.array([2.0]))
    m.register_buffer("y", None, persistent=False)


@script
def register_buffer_wants_a_string(side, m):
    m.register_buffer(3, side.array([1.0]))


@script
def register_buffer_refuses_a_dot(side, m):
    m.register_buffer("a.b", side.array([1.0]))


@script
def register_buffer_refuses_an_empty_name(side, m):
    m.register_buffer("", side.array([1.0]))


@script
def register_buffer_refuses_a_taken_name(side, m):
    m.x = 3
    m.register_buffer("x", side.array([1.0]))


@script
def register_buffer_refuses_a_parameters_name(side, m):
    m.x = param(side)
    m.register_buffer("x", side.array([1.0]))


@script
def register_buffer_refuses_a_childs_name(side, m):
    m.x = linear(side)
    m.register_buffer("x", 3)


@script
def register_buffer_refuses_a_class_attribute(side, m):
    m.register_buffer("taken", side.array([1.0]))


@script
def register_buffer_refuses_a_number(side, m):
    m.register_buffer("x", 3.0)


@script
def register_buffer_refuses_a_list(side, m):
    m.register_buffer("x", [1.0])


@script
def register_buffer_refuses_a_module(side, m):
    m.register_buffer("x", linear(side))


@script
def register_buffer_takes_a_parameter_as_a_buffer(side, m):
    m.register_buffer("x", param(side))
    assert list(m.parameters()) == []
    assert len(list(m.buffers())) == 1


@script
def register_buffer_takes_a_buffer_object_and_its_own_flag(side, m):
    m.register_buffer("x", buffer(side, persistent=False))
    m.register_buffer("y", buffer(side), persistent=False)


# add_module and register_module.


@script
def add_module_registers_and_replaces(side, m):
    m.add_module("x", linear(side))
    m.register_module("y", None)
    m.add_module("x", side.nn.Tanh())


@script
def add_module_names_the_modules_type_first(side, m):
    m.add_module(1, 3)


@script
def add_module_refuses_an_array(side, m):
    m.add_module("x", side.array([1.0]))


@script
def add_module_refuses_a_parameter(side, m):
    m.add_module("x", param(side))


@script
def add_module_refuses_a_class(side, m):
    m.add_module("x", side.nn.ReLU)


@script
def add_module_wants_a_string(side, m):
    m.add_module(1, linear(side))


@script
def add_module_refuses_a_dot(side, m):
    m.add_module("a.b", linear(side))


@script
def register_module_refuses_an_empty_name(side, m):
    m.register_module("", linear(side))


@script
def add_module_refuses_a_taken_name(side, m):
    m.x = 3
    m.add_module("x", linear(side))


@script
def add_module_refuses_a_parameters_name(side, m):
    m.x = param(side)
    m.add_module("x", None)


@script
def add_module_refuses_a_method(side, m):
    m.add_module("forward", linear(side))


# None slots, reading and deleting.


@script
def none_slots_are_held_and_left_out(side, m):
    m.register_parameter("x", None)
    m.register_buffer("y", None, persistent=False)
    m.register_module("z", None)
    assert list(m.parameters()) == list(m.buffers()) == list(m.children()) == []
    assert m.x is None
    assert m.y is None
    assert m.z is None


@script
def a_missing_name_is_an_attribute_error(side, m):
    return m.nothing


@script
def a_missing_name_of_a_child_names_its_class(side, m):
    m.x = linear(side)
    return m.x.nothing


@script
def deletion_takes_each_kind(side, m):
    m.x = param(side)
    m.register_buffer("y", side.array([1.0]), persistent=False)
    m.z = linear(side)
    m.number = 3
    del m.x, m.y, m.z, m.number
    assert not any(hasattr(m, name) for name in ("x", "y", "z", "number"))


@script
def deletion_takes_none_slots(side, m):
    m.register_parameter("x", None)
    m.register_buffer("y", None)
    m.register_module("z", None)
    del m.x
    del m.z


@script
def deletion_of_a_missing_name(side, m):
    m.x = param(side)
    del m.nothing


@script
def deletion_of_a_class_attribute(side, m):
    del m.taken


@script
def deletion_twice(side, m):
    m.x = linear(side)
    del m.x
    del m.x


@script
def deletion_of_one_name_of_a_tie(side, m):
    m.x = param(side)
    m.y = m.x
    del m.x


@script
def an_integer_parameter_cannot_train(side, m):
    m.x = side.nn.Parameter(side.array([1], "int32"))


@script
def an_integer_parameter_may_be_fixed(side, m):
    m.x = side.nn.Parameter(side.array([1], "int32"), requires_grad=False)


def run(side, function):
    """What a script raised, and what the module held then and when it was finished."""
    seen = []

    def record(side, module):
        seen.append(outcome(lambda: function(side, module)))
        seen.append(registries(side, module, NAMES))

    model = construct(side, record)
    return (*seen, registries(side, model, NAMES))


@pytest.mark.parametrize("function", SCRIPTS)
def test_a_constructor_does_the_same_on_both_sides(function):
    expected, actual = run(TORCH, function), run(OURS, function)
    assert actual[0] == expected[0]
    assert actual[1] == expected[1]
    assert actual[2] == expected[2]


# Mended: a refused assignment leaves the old value, and no child has a dotted or empty name.


def over_class_attribute(side, kind):
    """A class attribute blocks a parameter; the instance already holds something by that name."""
    seen = []

    def build(side, module):
        held = {"number": 5, "array": side.array([5.0]), "module": linear(side)}[kind]
        module.__dict__["taken"] = held
        seen.append(outcome(lambda: setattr(module, "taken", param(side))))
        seen.append(plain(side, module.taken))

    construct(side, build)
    return seen


@pytest.mark.parametrize(("kind", "held"), [("number", 5), ("array", [5.0]), ("module", "ReLU")])
def test_a_refused_parameter_leaves_the_old_value(kind, held):
    error = ("KeyError", "\"attribute 'taken' already exists\"")
    assert over_class_attribute(TORCH, kind) == [error, 7]
    assert over_class_attribute(OURS, kind) == [error, held]


def buffer_under_class_attribute(side):
    """A buffer registered under a name that the class takes later; then a parameter is refused."""
    seen = {}

    class Net(side.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", side.array([1.0]), persistent=False)
            self.register_buffer("x", side.array([2.0]))
            Net.w = 7
            seen["error"] = outcome(lambda: setattr(self, "w", param(side)))
            seen["held"] = registries(side, self)
            del Net.w

    model = Net()
    return seen, registries(side, model)


def test_a_refused_parameter_leaves_a_buffer_with_its_place_and_flag():
    (theirs, their_model), (ours, our_model) = map(buffer_under_class_attribute, (TORCH, OURS))
    assert theirs["error"] == ours["error"] == ("KeyError", "\"attribute 'w' already exists\"")
    assert theirs["held"]["buffers"] == their_model["buffers"] == [("x", [2.0])]
    assert ours["held"]["buffers"] == our_model["buffers"] == [("w", [1.0]), ("x", [2.0])]
    assert theirs["held"]["unsaved"] == set()
    assert ours["held"]["unsaved"] == our_model["unsaved"] == {"w"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.b", "'module name can\\'t contain \".\", got: a.b'"),
        ("", "'module name can\\'t be empty string \"\"'"),
    ],
)
def test_a_child_is_not_assigned_under_a_dotted_or_empty_name(name, text):
    def build(side, module):
        setattr(module, name, linear(side))

    assert [key for key, _ in construct(TORCH, build).named_children()] == [name]
    assert outcome(lambda: construct(OURS, build)) == ("KeyError", text)

    def add(side, module):
        module.add_module(name, linear(side))

    added = [outcome(lambda side=side: construct(side, add)) for side in SIDES]
    assert added[0] == added[1] == ("KeyError", text)


def test_a_refused_child_name_leaves_nothing_behind():
    def build(side, module):
        module.x = linear(side)
        with pytest.raises(KeyError):
            setattr(module, "x.y", linear(side))

    assert [name for name, _ in construct(OURS, build).named_modules()] == ["", "x"]


# Before super().__init__().

BEFORE = {
    "parameter": lambda side, m: setattr(m, "x", param(side)),
    "module": lambda side, m: setattr(m, "x", linear(side)),
    "buffer": lambda side, m: setattr(m, "x", buffer(side)),
    "register_parameter": lambda side, m: m.register_parameter("x", param(side)),
    "register_none_parameter": lambda side, m: m.register_parameter("x", None),
    "register_buffer": lambda side, m: m.register_buffer("x", side.array([1.0])),
    "add_module": lambda side, m: m.add_module("x", linear(side)),
    "register_module": lambda side, m: m.register_module("x", linear(side)),
    "delete": lambda side, m: delattr(m, "x"),
    "delete_plain": lambda side, m: (setattr(m, "x", 3), delattr(m, "x")),
    "read": lambda side, m: m.x,
    "plain_array": lambda side, m: setattr(m, "x", side.array([1.0])),
    "plain_number": lambda side, m: setattr(m, "x", 3),
}


@pytest.mark.parametrize("name", BEFORE)
def test_before_super_init(name):
    def attempt(side):
        seen = []
        model = construct(
            side,
            lambda side, m: seen.append(registries(side, m, NAMES)),
            before=lambda side, m: seen.append(outcome(lambda: BEFORE[name](side, m))),
        )
        return (*seen, registries(side, model, NAMES))

    expected, actual = attempt(TORCH), attempt(OURS)
    assert actual == expected
    assert (expected[0] is None) == name.startswith("plain")


def test_repr_before_super_init():
    def attempt(side):
        seen = []
        construct(side, lambda s, m: None, before=lambda s, m: seen.append(outcome(lambda: repr(m))))
        return seen[0]

    assert (
        attempt(OURS)
        == attempt(TORCH)
        == ("AttributeError", "'Net' object has no attribute '_modules'")
    )


# Arguments that the constructor does not take.


def bare(side):
    return type("Bare", (side.nn.Module,), {})


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((1,), {}, "Bare.__init__() takes 1 positional argument but 2 were given"),
        ((1, 2, 3), {}, "Bare.__init__() takes 1 positional argument but 4 were given"),
        ((), {"bias": 1}, "Bare.__init__() got an unexpected keyword argument 'bias'"),
        ((), {"b": 1, "a": 2}, "Bare.__init__() got an unexpected keyword argument 'b'"),
        ((1,), {"bias": 1}, "Bare.__init__() got an unexpected keyword argument 'bias'"),
    ],
)
def test_arguments_that_the_base_constructor_does_not_take(args, kwargs, text):
    for side in SIDES:
        assert outcome(lambda: bare(side)(*args, **kwargs)) == ("TypeError", text), side.name  # noqa: B023


def test_extra_arguments_passed_on_by_a_subclass_name_the_subclass():
    def build(side):
        class Child(side.nn.Module):
            def __init__(self, size):
                super().__init__(size)

        return Child

    for side in SIDES:
        error = outcome(lambda: build(side)(3))  # noqa: B023
        assert error == ("TypeError", "Child.__init__() takes 1 positional argument but 2 were given")


# Names live in the registries; what a class declares.


def test_registered_names_are_not_in_the_dict_and_can_be_shadowed_there():
    def attempt(side):
        seen = []

        def build(side, m):
            m.x = param(side)
            m.register_buffer("y", side.array([1.0]))
            m.z = linear(side)
            seen.append([name in vars(m) for name in "xyz"])
            vars(m)["x"] = 9
            seen.append((m.x, [name for name, _ in m.named_parameters()]))
            del vars(m)["x"]
            seen.append(plain(side, m.x))

        construct(side, build)
        return seen

    assert attempt(OURS) == attempt(TORCH)


def test_dir_lists_registered_names_but_no_digits():
    def attempt(side):
        def build(side, m):
            m.x = param(side)
            m.register_buffer("y", None)
            m.add_module("0", linear(side))
            m.add_module("z", linear(side))
            seen.append(listed(m))

        def listed(m):
            return [name for name in dir(m) if name in ("0", "taken", "x", "y", "z")]

        seen = []
        seen.append(listed(construct(side, build)))
        return seen

    assert attempt(OURS) == attempt(TORCH) == [["taken", "x", "y", "z"]] * 2


def test_an_annotation_without_a_value_does_not_block_a_parameter():
    def attempt(side):
        class Net(side.nn.Module):
            bias: Any
            other: Any = None

            def __init__(self):
                super().__init__()
                self.bias = param(side)
                seen.append(outcome(lambda: setattr(self, "other", param(side))))

        seen = []
        model = Net()
        return seen, registries(side, model, ("bias", "other"))

    expected, actual = attempt(TORCH), attempt(OURS)
    assert actual == expected
    assert expected[0] == [("KeyError", "\"attribute 'other' already exists\"")]


def test_a_property_that_raises_attribute_error_is_reported_as_itself():
    def attempt(side):
        class Net(side.nn.Module):
            @property
            def half(self):
                return self.nothing

        return outcome(lambda: Net().half)

    assert attempt(TORCH) == ("AttributeError", "'Net' object has no attribute 'half'")
    assert attempt(OURS) == ("AttributeError", "'Net' object has no attribute 'nothing'")


def test_a_property_with_a_setter():
    def attempt(side):
        class Net(side.nn.Module):
            def __init__(self):
                super().__init__()
                self.size = 3

            @property
            def size(self):
                return self.stored + 1

            @size.setter
            def size(self, value):
                self.stored = value * 2

        return Net().size, Net().stored

    assert attempt(OURS) == attempt(TORCH) == (7, 6)


# Overridden registration methods are what an assignment calls.


def test_an_overridden_register_parameter_sees_assignments():
    def attempt(side):
        class Net(side.nn.Module):
            def __init__(self):
                super().__init__()
                self.x = param(side)
                self.x = None
                self.register_parameter("y", None)

            def register_parameter(self, name, param):
                seen.append(name)
                super().register_parameter(name, param)

        seen = []
        return registries(side, Net(), ("x", "y")), seen

    assert attempt(OURS) == attempt(TORCH)


def test_an_overridden_register_buffer_sees_assignments():
    def attempt(side):
        class Net(side.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("x", side.array([1.0]), persistent=False)
                self.x = side.array([2.0])
                self.y = buffer(side)

            def register_buffer(self, name, tensor, persistent=True):
                seen.append((name, persistent))
                super().register_buffer(name, tensor, persistent)

        seen = []
        return registries(side, Net(), ("x", "y")), seen

    assert attempt(OURS) == attempt(TORCH)


def test_an_overridden_register_buffer_without_persistent():
    def attempt(side):
        class Net(side.nn.Module):
            def __init__(self):
                super().__init__()
                self.x = buffer(side)
                seen.append(outcome(lambda: setattr(self, "y", buffer(side, persistent=False))))

            def register_buffer(self, name, tensor):
                seen.append(name)
                super().register_buffer(name, tensor)

        seen = []
        return registries(side, Net(), ("x", "y")), seen

    expected = attempt(TORCH)
    assert expected[1][-1][0] == "RuntimeError"
    assert attempt(OURS) == expected


# The state machine of a slot, every kind over every other.

KINDS = {
    "parameter": param,
    "buffer": buffer,
    "unsaved": lambda side: buffer(side, persistent=False),
    "module": linear,
    "array": lambda side: side.array([9.0]),
    "number": lambda side: 3,
    "none": lambda side: None,
    "deleted": None,
}


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_every_kind_over_every_other(first, second):
    def steps(side, m):
        seen = []
        for kind in ("number" if first == "deleted" else first, second, "array", first):
            make = KINDS[kind]
            if make is None:
                seen.append(outcome(lambda: delattr(m, "x")))
            else:
                seen.append(outcome(lambda make=make: setattr(m, "x", make(side))))
            seen.append(registries(side, m, ("x",)))
        m.seen = repr(seen)
        return seen

    def attempt(side):
        log = []
        model = construct(side, lambda side, m: log.append(steps(side, m)))
        return log[0], registries(side, model, ("x",))

    assert attempt(OURS) == attempt(TORCH)


# What a finished value refuses.


def test_a_finished_model_is_never_assigned_to():
    model = construct(OURS, lambda side, m: setattr(m, "x", param(side)))
    before = model._parts
    for change in (
        lambda: setattr(model, "x", OURS.array([1.0])),
        lambda: setattr(model, "new", 3),
        lambda: delattr(model, "x"),
        lambda: model.register_buffer("b", None),
        lambda: model.register_parameter("p", None),
        lambda: model.add_module("m", None),
    ):
        with pytest.raises(FrozenModelError, match="write:"):
            change()
    assert model._parts is before
    np.testing.assert_array_equal(model.x, [1.0, 2.0])
