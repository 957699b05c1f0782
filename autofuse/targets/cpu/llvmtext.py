"""LLVM IR as text: a module, a function with fresh SSA names and blocks, and the LLVM spelling of element types.

Values in registers are spelled differently from values in memory:

| dtype      | register | memory | note                                                                    |
|------------|----------|--------|-------------------------------------------------------------------------|
| bool       | `i1`     | `i8`   | 0 or 1 in memory                                                        |
| i8 ... u64 | `iN`     | `iN`   | signedness comes from the DType                                         |
| f16        | `half`   | `half` | arithmetic in `float`, rounded after every op                           |
| bf16       | `float`  | `i16`  | in registers an f32 whose low 16 bits are zero: always already rounded  |
| f32, f64   | `float`, `double` | same |                                                                  |

`scalars.emit_load_conversion` and `scalars.emit_store_conversion` go between the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.errors import BackendError
from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass

_REGISTER = {"bool": "i1", "f16": "half", "bf16": "float", "f32": "float", "f64": "double"}
_MEMORY = {"bool": "i8", "f16": "half", "bf16": "i16", "f32": "float", "f64": "double"}


def vector_of(element: str, lanes: int) -> str:
    """The LLVM type of `lanes` elements of LLVM type `element`; one lane is the scalar itself."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def mangled(element: str, lanes: int) -> str:
    """The suffix of an overloaded intrinsic for this type: `f32`, `v16f32`, `v8i1`."""
    name = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}.get(element, element)
    return name if lanes == 1 else f"v{lanes}{name}"


@dataclass(frozen=True, slots=True)
class Vec:
    """The type of a value in a register: `lanes` elements of `dtype`; one lane is a scalar."""

    dtype: DType
    lanes: int

    @property
    def element(self) -> str:
        """LLVM type of one lane in a register."""
        return _REGISTER.get(self.dtype.name, f"i{self.dtype.bits}")

    @property
    def memory_element(self) -> str:
        """LLVM type of one stored element."""
        return _MEMORY.get(self.dtype.name, f"i{self.dtype.bits}")

    @property
    def llvm(self) -> str:
        """LLVM type in a register: `float`, `<16 x float>`, `<8 x i1>`."""
        return vector_of(self.element, self.lanes)

    @property
    def memory(self) -> str:
        """LLVM type of the same elements in memory, for loads and stores."""
        return vector_of(self.memory_element, self.lanes)


class FunctionText:
    """Writes the body of one LLVM function, block by block, in the order the blocks are opened.

    The function starts in the block `entry`. Every block must end in exactly one terminator (`branch`, `branch_if`,
    `ret`, or `line("unreachable")`); `render` raises BackendError where one does not. Parameter names must hold no dot:
    fresh names are `%hint.N`.
    """

    def __init__(self, module: ModuleText, header: str) -> None:
        """`header` is all of `define ... @name(...) attrs`; use `ModuleText.function` to make one."""
        self.module = module
        self.current = "entry"
        """Label of the block being written (without `%`), for phis."""
        self._header = header
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._counter = 0
        self._open = True

    def fresh(self, hint: str = "v") -> str:
        """A new SSA name such as `%v.7`, for `emit(..., name=...)` (loop-carried values need it)."""
        self._counter += 1
        return f"%{hint}.{self._counter}"

    def emit(self, instruction: str, hint: str = "v", name: str | None = None) -> str:
        """Append `name = instruction` and return the name; a fresh one unless given."""
        target = name or self.fresh(hint)
        self.line(f"{target} = {instruction}")
        return target

    def line(self, instruction: str) -> None:
        """Append an instruction that has no result (a store, a void call)."""
        if not self._open:
            raise BackendError(f"block {self.current} already ended; open another with `block` before: {instruction}")
        self._lines.append("  " + instruction)

    def label(self, hint: str = "block") -> str:
        """A new block label (without `%`); place it with `block`."""
        self._counter += 1
        return f"{hint}.{self._counter}"

    def block(self, label: str) -> None:
        """Start writing the block `label`. The previous block must have ended."""
        if self._open:
            raise BackendError(f"block {self.current} has no terminator; end it before opening {label}")
        self._lines.append(f"{label}:")
        self.current = label
        self._open = True

    def enter(self, label: str) -> None:
        """Start writing the block `label`; the previous one, if it is still open, goes on there."""
        if self._open:
            self.branch(label)
        self.block(label)

    def terminate(self, instruction: str) -> None:
        """Append a terminator; the block is closed."""
        self.line(instruction)
        self._open = False

    def branch(self, label: str) -> None:
        """Jump to `label`."""
        self.terminate(f"br label %{label}")

    def branch_if(self, condition: str, then: str, otherwise: str, *, unlikely: bool = False) -> None:
        """Jump on an i1; `unlikely` marks `then` as the cold side."""
        weights = f", !prof {self.module.unlikely()}" if unlikely else ""
        self.terminate(f"br i1 {condition}, label %{then}, label %{otherwise}{weights}")

    def ret(self, type_: str = "void", value: str = "") -> None:
        """Return from the function."""
        self.terminate(f"ret {type_} {value}".rstrip())

    def phi(self, type_: str, incoming: Sequence[tuple[str, str]], name: str | None = None) -> str:
        """A phi of (value, label without %) pairs; must come first in its block."""
        pairs = ", ".join(f"[ {value}, %{label} ]" for value, label in incoming)
        return self.emit(f"phi {type_} {pairs}", name=name)

    def alloca(self, type_: str, count: int = 1) -> str:
        """Stack space in the entry block for `count` values of `type_`; returns the pointer."""
        target = self.fresh("stack")
        self._allocas.append(f"  {target} = alloca {type_}, i64 {count}, align 64")
        return target

    def call(self, returns: str, callee: str, arguments: Sequence[tuple[str, str]]) -> str:
        """Call `callee` ("@name") with (type, value) arguments; returns the result's name, "" for void."""
        text = f"call {returns} {callee}({', '.join(f'{t} {v}' for t, v in arguments)})"
        if returns == "void":
            self.line(text)
            return ""
        return self.emit(text)

    def intrinsic(self, name: str, returns: str, arguments: Sequence[tuple[str, str]]) -> str:
        """Call an LLVM intrinsic or an external by full name ("llvm.fma.v8f32"), declaring it in the module."""
        self.module.declare(name, returns, [type_ for type_, _ in arguments])
        return self.call(returns, f"@{name}", arguments)

    def render(self) -> str:
        """The function's text. Raises BackendError when the last block is not ended."""
        if self._open:
            raise BackendError(f"block {self.current} of `{self._header}` has no terminator")
        return "\n".join([self._header + " {", "entry:", *self._allocas, *self._lines, "}"])


class ModuleText:
    """Collects functions, declarations and constant tables of one LLVM module, each name once."""

    def __init__(self, attributes: str = "nounwind", features: str = "") -> None:
        """`attributes` go on every function defined, such as `nounwind "prefer-vector-width"="512"`.

        `features` is the target's feature string (`Machine.features`): emitters may use these instructions by name.
        """
        self.attributes = attributes
        self._features = frozenset(features.split(","))
        self._declarations: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        self._functions: dict[str, FunctionText] = {}
        self._metadata: list[str] = []

    def function(
        self,
        name: str,
        returns: str,
        parameters: Sequence[tuple[str, str]],
        *,
        linkage: str = "",
        attributes: str = "",
    ) -> FunctionText:
        """Define a function. `parameters` are (type with attributes, name without %): ("ptr noalias", "x").

        Raises BackendError when the name is taken; ask `defines` first.
        """
        if name in self._functions:
            raise BackendError(f"function @{name} is already defined in this module; ask `defines` first")
        listed = ", ".join(f"{type_} %{parameter}" for type_, parameter in parameters)
        header = " ".join(f"define {linkage} {returns} @{name}({listed}) {attributes} {self.attributes}".split())
        self._functions[name] = FunctionText(self, header)
        return self._functions[name]

    def has(self, feature: str) -> bool:
        """Whether the module is for a target with `feature` (LLVM's name); without `features`, none is known."""
        return f"+{feature}" in self._features

    def defines(self, name: str) -> bool:
        """Whether a function or global of this name (without @) is defined here."""
        return name in self._functions or name in self._globals

    def declare(self, name: str, returns: str, parameters: Sequence[str]) -> str:
        """Declare an external or intrinsic once; returns "@name"."""
        self._declarations.setdefault(name, f"declare {returns} @{name}({', '.join(parameters)})")
        return f"@{name}"

    def define_global(self, name: str, definition: str) -> str:
        """Add `@name = definition` once, such as `internal constant [2 x i32] [i32 1, i32 2]`; returns "@name"."""
        self._globals.setdefault(name, f"@{name} = {definition}")
        return f"@{name}"

    def table(self, name: str, element: str, values: Sequence[str]) -> str:
        """A constant array of LLVM constants, 64-byte aligned; returns "@name"."""
        listed = ", ".join(f"{element} {value}" for value in values)
        return self.define_global(
            name, f"internal unnamed_addr constant [{len(values)} x {element}] [{listed}], align 64"
        )

    def unlikely(self) -> str:
        """The metadata node of a branch that is rarely taken."""
        if not self._metadata:
            self._metadata.append('!0 = !{!"branch_weights", i32 1, i32 2000}')
        return "!0"

    def render(self) -> str:
        """The whole module's text; `llvmlite.binding.parse_assembly` takes it."""
        parts = [
            *self._globals.values(),
            *(text for name, text in self._declarations.items() if name not in self._functions),
            *(function.render() for function in self._functions.values()),
            *self._metadata,
        ]
        return "\n".join(parts) + "\n"
