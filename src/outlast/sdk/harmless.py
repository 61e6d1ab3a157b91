"""Which workflow functions need no call watch: those whose bytecode shows that they cannot reach a clock or chance.

The watch of ``guard`` sees each call and costs a third of a turn. Most workflow code only passes plain values from task
to task. ``proof_of`` follows the values through such a function: it is harmless if all it calls is tasks, a few verbs and
builtins, with operators on nothing but plain values. Whatever else occurs, even in a branch never taken, leaves it
unproven, and its turns are watched.

A proof holds while the names it looked up mean the same, so it is to be asked before each turn whether it still does.
It knows the bytecode of Python 3.11 alone; later versions have a watch that costs nothing.
"""

import builtins
import dis
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final
from weakref import WeakKeyDictionary

from outlast.sdk import workflow
from outlast.sdk.definition import Parameters, WorkflowDefinition
from outlast.sdk.task import AsyncTask, SyncTask, Task

KNOWN_BYTECODE: Final = sys.version_info[:2] == (3, 11)
INSTRUCTIONS_MAX: Final = 2_000  # of a function that is looked at
PLAIN_TYPES: Final = (int, str, bool, float, bytes, None, type(None))
BUILTINS: Final = frozenset(
    {"abs", "bool", "float", "int", "len", "list", "max", "min", "range", "round", "sorted", "str", "sum", "tuple"}
)
TASKS: Final = (AsyncTask, SyncTask, Task)
ABSENT: Final = object()

Binding = tuple[Mapping[str, Any], str, Any]  # where a name is looked up, the name, what it means


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a value: its kind, and what calling or awaiting it gives."""

    kind: str
    gives: "Value | None" = None
    thing: Any = None
    any_arguments: bool = False


OPAQUE: Final = Value("opaque")  # it may be moved about, tested for None and handed to a task
PLAIN: Final = Value("plain")  # a number, a text, None, or a container of nothing else
NULL: Final = Value("null")  # the interpreter's own marker below a callable


class Unproven(Exception):
    """The function does something of which is not known that it is harmless."""


@dataclass(slots=True)
class State:
    """The values on the stack and in the local variables before an instruction."""

    stack: list[Value]
    names: dict[str, Value]

    def copy(self) -> "State":
        return State(self.stack.copy(), self.names.copy())

    def take(self) -> Value:
        return self.stack.pop()

    def take_plain(self, count: int = 1) -> None:
        for _ in range(count):
            if self.stack.pop() is not PLAIN:
                raise Unproven


class Proof:
    """The code of a harmless function, the names that it looks up, and what they meant."""

    __slots__ = ("_bindings", "_code", "_function")

    def __init__(self, function: FunctionType, bindings: Sequence[Binding]) -> None:
        self._function = function
        self._code = function.__code__
        self._bindings = bindings

    def holds(self) -> bool:
        """Say whether the code and every name still mean what they meant."""
        if self._function.__code__ is not self._code:
            return False
        for names, name, thing in self._bindings:  # noqa: SIM110 - asked in each turn, and faster so
            if names.get(name, ABSENT) is not thing:
                return False
        return True


def proof_of(definition: WorkflowDefinition) -> Proof | None:
    """Return the proof that the workflow needs no watch; None if there is none.

    It takes for granted that arguments and results come from the default converter, as the types that are declared.
    """
    function: Any = definition.function
    if not KNOWN_BYTECODE or type(function) is not FunctionType:
        return None
    known = _PROOFS.get(function)
    if known is None or known[0] is not definition.parameters:
        known = _PROOFS[function] = definition.parameters, _proved(function, definition.parameters)
    return known[1]


def _proved(function: FunctionType, parameters: Parameters) -> Proof | None:
    code = function.__code__
    if not inspect.iscoroutinefunction(function) or code.co_exceptiontable or code.co_freevars or code.co_cellvars:
        return None
    try:
        return _Reading(function, parameters).proof()
    except Exception:  # noqa: BLE001 - a declaration of the user's that cannot be read: whoever uses it will say so
        return None


_PROOFS: Final[WeakKeyDictionary[FunctionType, tuple[Parameters, Proof | None]]] = WeakKeyDictionary()


class _Reading:
    """Follows the values through one function's bytecode."""

    def __init__(self, function: FunctionType, parameters: Parameters) -> None:
        self._function = function
        self._parameters = parameters
        self._bindings: list[Binding] = []
        self._instructions = list(dis.get_instructions(function))
        self._place_of = {instruction.offset: place for place, instruction in enumerate(self._instructions)}
        self._before: dict[int, State] = {}
        self._waiting: list[int] = []

    def proof(self) -> Proof:
        """Return the proof; raises Unproven."""
        if len(self._instructions) > INSTRUCTIONS_MAX:
            raise Unproven
        self._reach(0, State([], self._arguments()))
        while self._waiting:
            place = self._waiting.pop()
            self._follow(place, self._instructions[place], self._before[place].copy())
        different = {(id(names), name): (names, name, thing) for names, name, thing in self._bindings}
        return Proof(self._function, tuple(different.values()))

    def _arguments(self) -> dict[str, Value]:
        defaults = (*(self._function.__defaults__ or ()), *(self._function.__kwdefaults__ or {}).values())
        if any(type(default) not in PLAIN_TYPES for default in defaults):
            return {}
        declared = zip(self._parameters.names, self._parameters.types, strict=True)
        code = self._function.__code__
        named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return {name: PLAIN for name, kind in declared if name in named and _is_plain(kind)}

    def _reach(self, place: int, state: State) -> None:
        """Take note of a way to an instruction: what differs between two ways is known of neither."""
        known = self._before.get(place)
        if known is None:
            self._before[place] = state
            self._waiting.append(place)
            return
        if len(known.stack) != len(state.stack):
            raise Unproven
        stack = [one if one == other else OPAQUE for one, other in zip(known.stack, state.stack, strict=True)]
        names = {name: one for name, one in known.names.items() if state.names.get(name) == one}
        if stack != known.stack or names != known.names:
            self._before[place] = State(stack, names)
            self._waiting.append(place)

    def _follow(self, place: int, instruction: dis.Instruction, state: State) -> None:
        name = instruction.opname
        if name == "RETURN_VALUE":
            return
        if name in _JUMPS:
            branch = state.copy()
            _JUMPS[name](branch, state)
            self._reach(self._place_of[instruction.argval], branch)
            if name in _ALWAYS:
                return
        elif name in _STEPS:
            _STEPS[name](state, instruction.arg or 0)
        elif name == "LOAD_FAST":
            state.stack.append(state.names.get(instruction.argval, OPAQUE))
        elif name == "STORE_FAST":
            state.names[instruction.argval] = state.take()
        elif name == "LOAD_GLOBAL":
            if (instruction.arg or 0) & 1:
                state.stack.append(NULL)
            state.stack.append(self._global(instruction.argval))
        elif name == "LOAD_METHOD":
            state.stack += [self._method(state.take(), instruction.argval), OPAQUE]
        elif name == "LOAD_ATTR" and state.stack[-1].thing is workflow:  # a verb, by way of an imported module
            state.stack.append(self._method(state.take(), instruction.argval))
        else:
            raise Unproven
        self._reach(place + 1, state)

    def _global(self, name: str) -> Value:
        names = self._function.__globals__
        thing = names.get(name, ABSENT)
        if thing is ABSENT:
            if name not in BUILTINS:
                return OPAQUE
            self._bindings.append((names, name, ABSENT))
            self._bindings.append((vars(builtins), name, getattr(builtins, name)))
            if names.get("__builtins__") not in (builtins, vars(builtins)):
                return OPAQUE
            return Value("call", gives=PLAIN)
        if thing is workflow or type(thing) in TASKS:
            self._bindings.append((names, name, thing))
            return Value("known", thing=thing)
        return OPAQUE

    def _method(self, owner: Value, name: str) -> Value:
        if owner is PLAIN and not name.startswith("_"):
            return Value("call", gives=PLAIN)
        thing: Any = owner.thing
        if thing is workflow and name == "sleep":
            self._bindings.append((vars(workflow), name, workflow.sleep))
            return Value("call", gives=Value("await", gives=PLAIN))
        if type(thing) in TASKS and name in {"execute", "using"}:
            attributes: dict[str, Any] = thing.__dict__
            self._bindings.append((attributes, name, ABSENT))
            if name == "using":
                return Value("call", gives=owner)
            result = PLAIN if _is_plain(thing.definition.parameters.result) else OPAQUE
            return Value("call", gives=Value("await", gives=result), any_arguments=True)
        raise Unproven


def _is_plain(declared: object) -> bool:
    return any(declared is kind for kind in PLAIN_TYPES)


def _call(state: State, count: int) -> None:
    arguments = [state.take() for _ in range(count)]
    upper, lower = state.take(), state.take()
    called = upper if lower is NULL else lower
    if called.kind != "call" or called.gives is None:
        raise Unproven
    if not called.any_arguments and any(argument is not PLAIN for argument in arguments):
        raise Unproven
    state.stack.append(called.gives)


def _awaited(state: State, _count: int) -> None:
    if state.stack[-1].kind != "await":
        raise Unproven


def _put_plain(state: State, _count: int = 0) -> None:
    state.stack.append(PLAIN)


def _nothing(_state: State, _count: int) -> None:
    return


def _plain_of(operands: int) -> Callable[[State, int], None]:
    """Return the step of an operator that takes so many plain values and gives one."""

    def step(state: State, _count: int) -> None:
        state.take_plain(operands)
        state.stack.append(PLAIN)

    return step


def _build(state: State, count: int) -> None:
    parts = [state.take() for _ in range(count)]
    state.stack.append(PLAIN if all(part is PLAIN for part in parts) else OPAQUE)


def _build_hashed(state: State, count: int) -> None:
    state.take_plain(count)
    state.stack.append(PLAIN)


def _format(state: State, flags: int) -> None:
    state.take_plain(2 if flags & 4 else 1)
    state.stack.append(PLAIN)


def _is(state: State, _count: int) -> None:
    state.take()
    state.take()
    state.stack.append(PLAIN)


def _drop(state: State, _count: int) -> None:
    state.take()


def _yielded(state: State, _count: int) -> None:
    state.take()
    state.stack.append(PLAIN)


_STEPS: Final[dict[str, Callable[[State, int], None]]] = {
    **dict.fromkeys(("RESUME", "NOP", "EXTENDED_ARG", "CACHE", "PRECALL", "KW_NAMES"), _nothing),
    **dict.fromkeys(("RETURN_GENERATOR", "LOAD_CONST"), _put_plain),
    **dict.fromkeys(("BINARY_OP", "BINARY_SUBSCR", "COMPARE_OP", "CONTAINS_OP"), _plain_of(2)),
    **dict.fromkeys(("UNARY_NOT", "UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "GET_ITER"), _plain_of(1)),
    **dict.fromkeys(("BUILD_LIST", "BUILD_TUPLE"), _build),
    **dict.fromkeys(("BUILD_STRING", "BUILD_SET"), _build_hashed),
    "BUILD_MAP": lambda state, count: _build_hashed(state, 2 * count),
    "LIST_EXTEND": lambda state, _count: _plain_of(2)(state, 0),
    "FORMAT_VALUE": _format,
    "IS_OP": _is,
    "PUSH_NULL": lambda state, _count: state.stack.append(NULL),
    "POP_TOP": _drop,
    "CALL": _call,
    "GET_AWAITABLE": _awaited,
    "YIELD_VALUE": _yielded,
}


# What a jump does to the stack, where it leads and where it does not.


def _same(_branch: State, _onward: State) -> None:
    return


def _test(branch: State, onward: State) -> None:
    branch.take_plain()
    onward.take_plain()


def _test_none(branch: State, onward: State) -> None:
    branch.take()
    onward.take()


def _test_or_pop(branch: State, onward: State) -> None:
    if branch.stack[-1] is not PLAIN:
        raise Unproven
    onward.take()


def _send(branch: State, onward: State) -> None:
    branch.take()
    gives = branch.take().gives
    if gives is None:
        raise Unproven
    branch.stack.append(gives)
    onward.take()
    onward.stack.append(OPAQUE)


def _next(branch: State, onward: State) -> None:
    branch.take()
    if onward.stack[-1] is not PLAIN:
        raise Unproven
    onward.stack.append(PLAIN)


_ALWAYS: Final = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_JUMPS: Final[dict[str, Callable[[State, State], None]]] = {
    **dict.fromkeys(_ALWAYS, _same),
    **{f"POP_JUMP_{way}_IF_{truth}": _test for way in ("FORWARD", "BACKWARD") for truth in ("TRUE", "FALSE")},
    **{f"POP_JUMP_{way}_IF_{kind}": _test_none for way in ("FORWARD", "BACKWARD") for kind in ("NONE", "NOT_NONE")},
    "JUMP_IF_TRUE_OR_POP": _test_or_pop,
    "JUMP_IF_FALSE_OR_POP": _test_or_pop,
    "SEND": _send,
    "FOR_ITER": _next,
}
