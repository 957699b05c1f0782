"""`from_stablehlo`: a StableHLO program as a function of arrays."""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.spec import Spec
from autofuse.frontend.stablehlo.bindings import is_bytecode, parsed, printed, reading
from autofuse.frontend.stablehlo.highlevel import legalised
from autofuse.frontend.stablehlo.layout import layout_of
from autofuse.frontend.stablehlo.module import Module
from autofuse.frontend.stablehlo.source import TEXT, Source, source_of
from autofuse.frontend.stablehlo.specialised import made_static
from autofuse.frontend.stablehlo.splicing import spliced, taken_over
from autofuse.frontend.stablehlo.tensortypes import Shaped
from autofuse.frontend.stablehlo.translation import Parameter, graph_of, parameters_of
from autofuse.frontend.stablehlo.trial import require_readable, require_shallow
from autofuse.frontend.tracecontext import CallScope, Tracing, current, is_active
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.host.collecting import collecting_less
from autofuse.ir.graph import Graph, Value
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.parameters import leaves_of_call
from autofuse.ir.tree import paths, unflatten
from autofuse.ir.types import TensorType, of_array

_MOST_GRAPHS = 16
"""Graphs that a program of unknown extents keeps, one for each kind of call."""


def from_stablehlo(source: Any) -> StableHloFunction:
    """A StableHLO program as a function, for `trace`, `compile`, `tune` and `jit`, and to be called by functions.

    `source`: the text of a module, MLIR bytecode, a portable artifact (VHLO), a `pathlib.Path` of a file with one of
    these, or a `jax.export.Exported`, whose arguments and results keep their structure. A program whose extents are
    not all known becomes a graph at the first call with arguments of some types; any other one at once. jaxlib reads
    modules (the extra `jax`); JAX is not imported, nor does a plan need either.

    Raises ArgumentError for what is no program, and where jaxlib is missing; ParseError for text and bytes that cannot
    be read; TraceError, which names the operation, its source line and a remedy, for what autofuse does not have.
    """
    return StableHloFunction(source_of(source))


class StableHloFunction:
    """A program that was read from StableHLO. Called with arrays of NumPy's outside a trace, it is interpreted."""

    emits_graph = True
    """See `autofuse.frontend.readprogram`."""
    source_digest: str | None = None
    """Of all that decides what it computes and how arguments are called, but no source lines; None if unknown."""

    def __init__(self, source: Source) -> None:
        if not is_bytecode(source.data):
            require_shallow(source.data)
        elif not source.trusted:
            require_readable(source.data)
        with reading():
            self._read(source, parsed(source.data))

    @classmethod
    def of_module(cls, module: Any, name: str, names: Sequence[str | None] = ()) -> StableHloFunction:
        """The program of a module of static extents that jaxlib holds in memory. It is translated at the first use.

        It looks at the module until `let_go`. `names`: of the program's arguments, all of them or none: the
        module's own where they are None.
        """
        function = cls.__new__(cls)
        bytecode = BytesIO()
        with reading():
            module.operation.write_bytecode(bytecode)
            function._describe(Source(bytecode.getvalue(), TEXT, name, trusted=True), module, names)
            text = printed(module, use_local_scope=True)
        function._held = module
        called = ",".join(function._layout.names)
        function.source_digest = hashlib.sha256(f"{name} {called}\n{text}".encode()).hexdigest()
        return function

    def let_go(self) -> None:
        """Keep the program alone, not jaxlib's module, which takes far more memory."""
        with self._lock:
            self._held = None

    def _read(self, source: Source, module: Any) -> None:
        self._describe(source, module)
        own = self._own_types()
        if own is not None:
            self._graphs[own] = self._translated(module)

    def _own_types(self) -> tuple[TensorType, ...] | None:
        """The types of what the module takes; None where it leaves extents open."""
        types = [_static(self._layout.types[place]) for place in self._layout.inputs]
        known = tuple(type_ for type_ in types if type_ is not None)
        return known if len(known) == len(types) else None

    def _describe(self, source: Source, module: Any, names: Sequence[str | None] = ()) -> None:
        self.__name__ = self.__qualname__ = source.name
        self.__doc__ = f"The StableHLO program {source.name}."
        self._source = source
        self._layout = layout_of(source, _renamed(parameters_of(module), names))
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in self._layout.names])
        self._graphs: dict[tuple[TensorType, ...], Graph] = {}
        self._lock = threading.Lock()
        self._held: Any = None
        """The module, where it is at hand."""

    @property
    def graph(self) -> Graph:
        """What it computes. Raises ArgumentError where the program leaves extents open."""
        return self._graph([spec.type for spec in self._specs([self._layout.types[n] for n in self._layout.inputs])])

    @property
    def example_specs(self) -> tuple[Any, ...]:
        """What the function can be called with: a spec in the place of each array.

        Raises ArgumentError where the program leaves extents open.
        """
        return unflatten(self._layout.arguments, self._specs(self._layout.types))

    def _specs(self, wanted: Sequence[Shaped]) -> list[Spec]:
        types = [_static(shaped) for shaped in wanted]
        if None in types:
            texts = ", ".join(map(str, self._layout.types))
            raise ArgumentError(f"{self.__name__} takes arrays of any extent ({texts}): give specs with numbers for ?")
        return [Spec(type_) for type_ in types if type_ is not None]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results, traced where a trace is under way. Raises ArgumentError for arguments of other types."""
        given = self._given(args, kwargs)
        if is_active():
            with CallScope():
                values = self._traced(current(), [as_tracer(leaf).value for leaf in given])
            return self._returned([fresh(value) for value in values])
        arrays = [np.asarray(leaf) for leaf in given]
        results = interpret(self._graph(list(map(of_array, arrays))), *arrays)
        return self._returned([result[()] if result.ndim == 0 else result for result in results])

    def __reduce__(self) -> tuple[Any, ...]:
        return StableHloFunction, (self._source,)

    def __repr__(self) -> str:
        return f"<autofuse: StableHLO program {self.__name__}({', '.join(map(str, self._layout.types))})>"

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """What the module takes among the arguments, checked; numbers as arrays of the dtype that is wanted."""
        layout = self._layout
        leaves = leaves_of_call(self.__name__, layout.names, layout.arguments, args, kwargs)
        called = [
            path
            for name, child in zip(layout.names, layout.arguments.children, strict=True)
            for path in paths(child, name)
        ]
        held = [_checked(*each) for each in zip(leaves, layout.types, called, strict=True)]
        return [held[place] for place in layout.inputs]

    def _traced(self, tracing: Tracing, arguments: Sequence[Value]) -> Sequence[Value]:
        """The results for these arguments, in a trace. A graph that is made now reads them, and becomes part of it."""
        inputs = tuple(arguments) if len({*arguments}) == len(arguments) else ()
        graph = self._graph([value.type for value in arguments], inputs, tracing.builder)
        made_here = bool(inputs) and graph.inputs is inputs
        return taken_over(tracing, graph) if made_here else spliced(tracing, graph, arguments)

    def _graph(
        self, types: Sequence[TensorType], inputs: tuple[Value, ...] = (), around: GraphBuilder | None = None
    ) -> Graph:
        """The graph for arguments of these types, made at the first such call.

        `inputs`, `around`: as for `graph_of`, where it is made now.
        """
        key = tuple(types)
        with self._lock:
            found = self._graphs.get(key)
            if found is None:
                with reading():
                    module = parsed(self._source.data) if self._held is None else self._held
                    is_own = key == self._own_types()
                    known = module if is_own else made_static(module, key, self._source.name)
                    graph = self._translated(known, inputs, around)
                self._held = None
                if len(self._graphs) >= _MOST_GRAPHS:
                    del self._graphs[next(iter(self._graphs))]
                found = self._graphs[key] = graph
        return found

    def _translated(self, module: Any, inputs: Sequence[Value] = (), around: GraphBuilder | None = None) -> Graph:
        with collecting_less():
            return graph_of(legalised(Module(module, self._source.own)), self._source.name, inputs, around)

    def _returned(self, arrays: Sequence[Any]) -> Any:
        structure = self._layout.results
        if structure is None:
            return arrays[0] if len(arrays) == 1 else tuple(arrays)
        return unflatten(structure, [arrays[number] for number in self._layout.outputs])


def _renamed(parameters: Sequence[Parameter], names: Sequence[str | None]) -> Sequence[Parameter]:
    if not names:
        return parameters
    return [Parameter(name or own.name, own.type) for own, name in zip(parameters, names, strict=True)]


def _static(shaped: Shaped) -> TensorType | None:
    extents = tuple(extent for extent in shaped.shape if extent is not None)
    return TensorType(extents, shaped.dtype) if len(extents) == len(shaped.shape) else None


def _checked(leaf: Any, wanted: Shaped, name: str) -> Any:
    """An array that the program can take. Raises ArgumentError."""
    array: TracerArray | NDArray[Any]
    if isinstance(leaf, bool | int | float):
        array = np.asarray(leaf, wanted.dtype.numpy)
    else:
        array = leaf if isinstance(leaf, TracerArray) else np.asarray(leaf)
    fits = len(array.shape) == len(wanted.shape) and all(
        extent in (None, given) for extent, given in zip(wanted.shape, array.shape, strict=True)
    )
    if not fits or array.dtype != wanted.dtype.numpy:
        extents = ",".join(map(str, array.shape))
        raise ArgumentError(f"{name}: the program takes {wanted}, got {array.dtype}[{extents}]; convert or reshape it")
    return array
