"""Jitted functions: a plan per kind of call, made at the first such call."""

from __future__ import annotations

import functools
import os
import pickle
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Hashable, Mapping
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal

from autofuse.api.callers import outside
from autofuse.api.callkinds import Call, Calls, key_of, tells_all
from autofuse.api.keptplans import KeptPlans, KeptReads, Numbers
from autofuse.api.plan import Plan
from autofuse.errors import ArgumentError, PlanError
from autofuse.frontend.usersclasses import has_attributes
from autofuse.lazydataclass import is_dataclass
from autofuse.plan.store import PlanStore
from autofuse.targets.base import Target, find_target
from autofuse.targets.registry import DEFAULT

if TYPE_CHECKING:  # a plan that is found in a store needs none of these
    from autofuse.frontend.methods import Reads
    from autofuse.plan.document import PlanDocument
    from autofuse.search.plans.planning import Program

OnMiss = Literal["compile", "error", "tune"]
_WISHES = ("rules", "legality", "max_memory")
"""Options that a stored plan must keep."""


class Jitted:
    """A compiled function. One plan per structure, shapes, dtypes and static values of the arguments.

    Arguments go by position or by name, as the function takes them. As an attribute of a class it is a method: what it
    reads of its object is part of the kind of call, and the arrays among that are arguments. It keeps the plans that
    were used last (`autofuse.api.keptplans` says how many) and no object. Calls from several threads may run at once.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        store: str | os.PathLike[str] | None,
        on_miss: OnMiss,
        options: Mapping[str, Any],
        tuning: Mapping[str, Any],
        compiling: Mapping[str, Any],
        verify: bool = False,
    ) -> None:
        """`options`: for `compile` and `tune`, those that are not as usual; `tuning`, `compiling`: for one alone.

        `verify`: whether a new plan is compared with the function before it runs.
        """
        functools.update_wrapper(self, fn)
        self.function = fn
        self.store = None if store is None else PlanStore(store)
        """Where tuned plans are looked up; `store.stats()` says how often that worked."""
        self._on_miss: OnMiss = on_miss
        self._options, self._tuning, self._compiling = dict(options), dict(tuning), dict(compiling)
        self._verify = verify
        self._verified: weakref.WeakSet[Plan] = weakref.WeakSet()
        self._plans: KeptPlans[Plan] = KeptPlans()
        self._calls = Calls(fn)
        self._reads: KeptReads[Reads] = KeptReads()
        self._numbers = Numbers(getattr(fn, "__name__", "function"))
        self._lock = threading.RLock()  # a function may call itself with other static values
        self._quick: Callable[..., Any] | None = None
        """What runs the plan of the last call, and says NotImplemented to calls that are not of its kind."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the plan for these arguments, made at the first such call."""
        if not kwargs:
            quick = self._quick
            if quick is not None and (result := quick(*args)) is not NotImplemented:
                return result
            key = key_of(args)
            plan = self._plans.find(key)
            if plan is not None and self._may_run(plan):
                self._quick = plan.native if tells_all(key) and not plan.through_numpy else None
                return plan(*args)
        return self._run(args, kwargs)

    def plan(self, /, *args: Any, **kwargs: Any) -> Plan:
        """The plan that a call with these arguments runs; specs may stand for arrays.

        A method's plan takes the arrays of its object by their names.
        """
        return self._plan_of(args, kwargs)[0]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """The function as a method of `instance`."""
        return self if instance is None else BoundJitted(self, instance)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By its place in its module, if that is where it is; else as the function, and how it is compiled."""
        folder = None if self.store is None else self.store.folder
        how = (folder, self._on_miss, self._options, self._tuning, self._compiling, self._verify)
        name: str = getattr(self, "__qualname__", "")
        if _at(self.__module__, name) is not self:
            return Jitted, (self.function, *how)
        if self.__module__ == "__main__":
            return _of_script, (name, _by_value(self.function), how)
        return name

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from autofuse.frontend.tracecontext import is_active

        if is_active():  # called by a function that is being traced
            return self.function(*args, **kwargs)
        plan, values = self._plan_of(args, kwargs)
        if plan.through_numpy:
            return self.function(*args, **kwargs)
        if not self._may_run(plan):
            plan.verify(self.function, *args, **kwargs)
            self._verified.add(plan)
        return plan.in_order(values)

    def _may_run(self, plan: Plan) -> bool:
        return not self._verify or plan in self._verified

    def _plan_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Plan, tuple[Any, ...]]:
        """The plan of a call, made if need be, and the values of its parameters."""
        if args and has_attributes(args[0]) and not is_dataclass(args[0]):
            return self.plan_on(args[0], args[1:], kwargs)
        call = self._calls.of(args, kwargs)
        plan = self._plans.find(call.key)
        if plan is None:
            with self._lock:
                plan = self._plans.find(call.key)
                if plan is None:
                    plan = self._make(self.function, args, kwargs)
                    self._quick = None  # who is called often is asked for again, and so is not the next to go
                    self._plans.keep(call.key, plan, plan.constant_bytes)
                    self._numbers.compiled(call.structures, call.types, stacklevel=outside())
        return plan, call.values

    def call_on(self, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call it as a method of an object."""
        from autofuse.frontend.tracecontext import is_active

        if is_active():
            return self.function(instance, *args, **kwargs)
        plan, values = self.plan_on(instance, args, kwargs)
        return self.function(instance, *args, **kwargs) if plan.through_numpy else plan.in_order(values)

    def plan_on(self, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Plan, tuple[Any, ...]]:
        """The same for a method of an object, of whatever kind."""
        if not has_attributes(instance):
            return self._plan_of((instance, *args), kwargs)
        if self._verify:
            called = f"{type(instance).__qualname__}.{self.function.__name__}"
            raise ArgumentError(f"{called}: verify=True is for functions; a method cannot run on a copy of its object")
        call = self._calls.of(args, kwargs, method=True)
        kind = (weakref.ref(type(instance)), call.key)
        found = self._known(kind, instance)
        if found is None:
            with self._lock:
                found = self._known(kind, instance) or self._made_on(instance, args, kwargs, call, kind)
        plan, arrays = found
        return plan, (*call.values, arrays) if arrays else call.values

    def _known(self, kind: Hashable, instance: Any) -> tuple[Plan, dict[str, Any]] | None:
        """The plan for an object as it is now, and the arrays that the plan takes of it."""
        for reads in self._reads.of(kind):
            seen = reads.look(instance)
            plan = None if seen is None else self._plans.find((kind, reads, seen[0]))
            if plan is not None and seen is not None:
                return plan, seen[1]
        return None

    def _made_on(
        self, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call, kind: Hashable
    ) -> tuple[Plan, dict[str, Any]]:
        from autofuse.api.numpyonly import NumpyPlan
        from autofuse.frontend.methods import Method

        method = Method(self.function, instance)
        plan = self._make(method, args, kwargs)
        if isinstance(plan, NumpyPlan):
            plan = NumpyPlan(self.function, plan.reason)  # which keeps no object
        self._reads.keep(kind, method.reads)
        self._plans.keep((kind, method.reads, method.state), plan, plan.constant_bytes)
        rest = weakref.ref(type(instance)), call.types, method.state.kinds
        self._numbers.compiled({**call.structures, **method.structures}, rest, outside())
        return plan, method.arrays

    def _make(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
        from autofuse.api import compiling

        given = {"kwargs": kwargs} if kwargs else {}
        if self.store is None:
            return compiling.compile(function, *args, **given, **self._options, **self._compiling)
        from autofuse.api import programs, tunedplans, tuning
        from autofuse.api.numpyonly import NumpyPlan, traced_or_left, warn_of_calls_left
        from autofuse.ir.digest import digest

        how = {
            name: self._options[name] for name in ("on_unsupported", "check_bounds", "roll") if name in self._options
        }
        decided = {name: self._options[name] for name in _WISHES if name in self._options}
        traced = traced_or_left(function, args, kwargs, **how, decided=decided, warns=False)
        if isinstance(traced, NumpyPlan):
            return traced
        numerics = self._options.get("numerics", "strict")
        program = programs.traced_program(traced, numerics=numerics)
        identity = self._target().identity
        unkept: list[str] = []

        def unwanted(document: PlanDocument) -> str | None:
            if not programs.is_of(document, program):
                return "it is of another graph, or of a variant that this version does not know"
            reason = self._unkept(document, program)
            unkept.extend(() if reason is None else (reason,))
            return reason

        found = self.store.get(digest(program.graph), identity, numerics, unwanted)
        if found is not None:
            warn_of_calls_left(traced, how.get("on_unsupported", "numpy"))  # on a miss, who compiles does
            return Plan(program.renamed(found))
        name = getattr(function, "__name__", "function")
        kept = f" that keeps to what was asked for: {unkept[0]}" if unkept else ""
        if self._on_miss == "error":
            raise PlanError(
                f"{name}: no plan for these arguments in {self.store.folder}{kept}; tune one, or say on_miss='compile'"
            )
        types = ", ".join(str(value.type) for value in program.graph.inputs)
        what = f"autofuse: no tuned plan for {name}({types}) in {self.store.folder} ({self._on_miss}){kept}"
        warnings.warn(what, stacklevel=outside())
        if self._on_miss != "tune":
            return compiling.compile(function, *args, **given, **self._options, **self._compiling)
        plan = tuning.tune(function, *args, **given, **self._options, **self._tuning)
        if tunedplans.was_interrupted(plan):
            raise KeyboardInterrupt
        if unkept:
            what = "its place has one that others may want; give functions with rules a store of their own"
            warnings.warn(f"autofuse: the tuned plan is not kept: {what}", stacklevel=outside())
        else:
            self._put(plan)
        return plan

    def _unkept(self, document: PlanDocument, program: Program) -> str | None:
        """What a stored plan does not keep of what the user asks of plans; None if it keeps all."""
        wishes = {name: self._options[name] for name in _WISHES if name in self._options}
        if not wishes:
            return None
        from autofuse.api import partitioning, programs

        variants = self._options.get("variants", programs.AUTO)
        about = {} if variants == programs.AUTO else {"variants": variants}
        return partitioning.unkept(document, program, self._target(), **about, **wishes)

    def _target(self) -> Target:
        return find_target(self._options.get("backend", DEFAULT), *map(self._options.get, ("threads", "device")))

    def _put(self, plan: Plan) -> None:
        """Keep a tuned plan. One that cannot be kept is still used."""
        assert self.store is not None
        try:
            self.store.put(plan.document)
        except PlanError as failure:
            warnings.warn(f"autofuse: the tuned plan is not kept: {failure}", stacklevel=outside())


def _at(module: str, qualname: str) -> Any:
    place: Any = sys.modules.get(module)
    for name in qualname.split("."):
        place = getattr(place, name, None)
    return place


def _by_value(function: Callable[..., Any]) -> bytes | None:
    """A function as bytes, where a library that pickles code is at work: joblib's workers do not have the script."""
    for name in ("cloudpickle", "joblib.externals.cloudpickle"):
        if name in sys.modules:
            return sys.modules[name].dumps(function)
    return None


def _of_script(qualname: str, function: bytes | None, how: tuple[Any, ...]) -> Any:
    """The jitted function of the script that this process runs too, or else one made of the function's bytes."""
    found = _at("__main__", qualname)
    if isinstance(found, Jitted) or function is None:
        return found
    return Jitted(pickle.loads(function), *how)


class BoundJitted:
    """A jitted function as a method of an object, as Python's own methods are."""

    __slots__ = ("__func__", "__self__")

    def __init__(self, function: Jitted, instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    @property
    def __wrapped__(self) -> MethodType:
        return MethodType(self.__func__.function, self.__self__)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the plan for these arguments and the object as it is, made at the first such call."""
        return self.__func__.call_on(self.__self__, args, kwargs)

    def plan(self, /, *args: Any, **kwargs: Any) -> Plan:
        """The plan that a call with these arguments runs. It takes the arrays of the object by their names."""
        return self.__func__.plan_on(self.__self__, args, kwargs)[0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundJitted, (self.__func__, self.__self__)
