"""A scatter as CUDA C: the operand is copied, keys are made and put in order, and updates meet in that order.

start      result = x; for each key its place, or that it is outside
(order)    as `scatterplan` says
combine    the first of equal keys goes through all of them, for each element of a key a thread, or a warp
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autofuse.errors import BackendError
from autofuse.ir import dtypes, index
from autofuse.ir.graph import Value
from autofuse.ir.index import Affine, Symbol
from autofuse.lower.librarykernels import Counted, Fixed, Source, Stored
from autofuse.lower.tile import Buffer, OpaqueProgram, Space
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen import radixsort
from autofuse.targets.cuda.codegen.ctext import IndexText, Names, Writer, needs_wide, symbol
from autofuse.targets.cuda.codegen.cudakernel import CudaKernel, CudaLaunch
from autofuse.targets.cuda.codegen.program import SHARED_MEMORY
from autofuse.targets.cuda.codegen.scatterplan import DIGIT_BITS, DIGITS, SORT_THREADS, ScatterPlan, scatter_plan
from autofuse.targets.cuda.ctypes_text import literal, memory_type, register_type
from autofuse.targets.cuda.prelude import Prelude

_THREADS = 256
_PACK_BYTES = 16
_BEYOND = 1 << 62
"""Unsigned indices from here on are out of bounds, as this is; as signed ones they could come back in."""
_WARP, _AHEAD = 32, 4
"""Threads that go through equal keys together, and updates that each has on its way while others are combined."""
_PRIVATE_BLOCKS, _PRIVATE_SHARE = 1 << 10, 16
"""Most blocks that add up for themselves, and updates to each of their own elements: those they add to the result."""
_VALUES = ("key", "to", "value", "update", "counted", "number", "now", "next")
_PLACES = ("i", "j", "begin", "end", "lane", "from")
"""What the functions call their own variables, beside symbols."""
_KEYS_BELOW = """\
// How many of the keys, which are in order, are less than `key`.
__device__ __forceinline__ int keys_below(const unsigned int* keys, int count, unsigned int key) {
    int low = 0, high = count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (keys[middle] < key) low = middle + 1;
        else high = middle;
    }
    return low;
}
"""
_HEADERS = {"f16": "cuda_fp16.h", "bf16": "cuda_bf16.h"}


def generate_scatter(program: OpaqueProgram, arch: str) -> CudaKernel:
    """The CUDA C of a kernel that is a scatter; its parameters end with its workspaces.

    The result may be the operand's memory; else nothing overlaps. Raises LegalityError for one that is too large, and
    BackendError for a kernel that is none.
    """
    plan = scatter_plan(program)
    if plan is None:
        raise BackendError(f"kernel {program.name} must be a scatter of values that are there")
    return _Scatter(program, plan, arch).kernel()


class _Scatter:
    """Writes the functions of one scatter."""

    def __init__(self, program: OpaqueProgram, plan: ScatterPlan, arch: str) -> None:
        self.program, self.plan, self.arch = program, plan, arch
        self.buffers: tuple[Buffer, ...] = (*_without_workspaces(program), *plan.workspaces)
        self.prelude, names = Prelude(), Names()
        for own in (*_VALUES, *_PLACES, "keys_below", *radixsort.NAMES, *_symbols(plan)):
            names.fresh(own)
        self.names = {buffer.name: names.fresh(buffer.name) for buffer in self.buffers}
        values = zip((*program.graph.inputs, *program.graph.outputs), self.buffers, strict=False)
        self.place: Mapping[Value, str] = {value: self.names[buffer.name] for value, buffer in values}
        self.index = IndexText(self.prelude, wide=any(map(needs_wide, _affines(plan))))
        self.dtype = plan.result.dtype
        self.target = self.place[plan.node.output]
        self.base = symbol(program.name)
        self.functions: list[str] = []
        self.launches: list[CudaLaunch] = []

    def kernel(self) -> CudaKernel:
        """All launches."""
        self._start()
        if not self.plan.is_nothing:
            {"atomic": self._atomic, "winners": self._winners, "ranked": self._ranked, "sorted": self._sorted}[
                self.plan.way
            ]()
        for buffer in self.buffers:
            if buffer.type.dtype.name in _HEADERS:
                self.prelude.header(_HEADERS[buffer.type.dtype.name])
        sort = radixsort.FUNCTIONS if self.plan.way == "sorted" and not self.plan.is_nothing else ""
        source = self.prelude.text() + sort + "\n".join(self.functions)
        return CudaKernel(self.program.name, source, tuple(self.launches), self.buffers, self.arch)

    # ---- functions ---------------------------------------------------------------------------------------------------

    def _function(
        self, suffix: str, blocks: int, threads: int, write: Callable[[Writer], None], shared: int = 0
    ) -> None:
        """Append a function and its launch."""
        name, out = f"{self.base}_{suffix}", Writer(1)
        if shared:
            out.line(SHARED_MEMORY)
            out.line("unsigned int* const counted = reinterpret_cast<unsigned int*>(shared_memory);")
        write(out)
        head = f'extern "C" __global__ void __launch_bounds__({threads})\n{name}'
        parameters = ", ".join(map(self._parameter, self.buffers))
        self.functions.append(f"{head}({parameters}) {{\n{out.text()}}}\n")
        self.launches.append(CudaLaunch(name, (blocks, 1, 1), (threads, 1, 1), shared))

    def _for_each(self, suffix: str, count: int, write: Callable[[Writer], None]) -> None:
        """Append a function with a thread for each of `count` items, `i`."""

        def body(out: Writer) -> None:
            kind = self.index.type
            out.line(f"const {kind} i = ({kind})blockIdx.x * {_THREADS} + (int)threadIdx.x;")
            with out.braces(f"if (i < {count})"):
                write(out)

        self._function(suffix, max(1, -(-count // _THREADS)), _THREADS, body)

    def _parameter(self, buffer: Buffer) -> str:
        """May overlap others where results are written into the operand."""
        constant = "const " if buffer.space is Space.INPUT else ""
        return f"{constant}{memory_type(buffer.type.dtype)}* {self.names[buffer.name]}"

    # ---- what all ways have ------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Copies the operand, and makes keys."""
        plan, packs = self.plan, self._packs()
        copies = plan.result.size if packs is None else packs
        keys = 0 if plan.way in ("atomic", "winners") else plan.keys
        cleared = plan.count if plan.way == "winners" else 0

        def write(out: Writer) -> None:
            with out.braces(f"if (i < {copies})"):
                self._copy(out, packs is not None)
            if cleared:
                out.line(f"if (i < {cleared}) {self.names['winners']}[i] = 0;")
            if keys:
                with out.braces(f"if (i < {keys})"):
                    self._key(out, "i")
                    out.line(f"{self.names['keys']}[i] = key;")
                    if plan.way == "sorted":
                        out.line(f"{self.names['order']}[i] = i;")

        self._for_each("start", max(copies, 0 if plan.is_nothing else max(keys, cleared)), write)

    def _packs(self) -> int | None:
        """Copies of 16 bytes that the whole operand is; None if it has to be read element by element."""
        plan = self.plan
        at = index.linearize(tuple(map(index.of, plan.operand_symbols)), plan.result.shape)
        whole = isinstance(plan.operand, Stored) and plan.operand.offset == at and plan.result.nbytes % _PACK_BYTES == 0
        return plan.result.nbytes // _PACK_BYTES if whole else None

    def _copy(self, out: Writer, in_packs: bool) -> None:
        plan = self.plan
        if in_packs:
            assert isinstance(plan.operand, Stored)
            load, store = self.prelude.use("load_pack"), self.prelude.use("store_pack")
            source = f"reinterpret_cast<const unsigned int*>({self.place[plan.operand.buffer]})"
            target = f"reinterpret_cast<unsigned int*>({self.target})"
            out.line(f"{store}({target} + 4 * i, {load}<4>({source} + 4 * i));")
            return
        names = self._walked(out, "i", plan.operand_symbols)
        out.line(f"{self.target}[i] = {self._element(plan.operand, names)};")

    def _walked(self, out: Writer, number: str, symbols: Sequence[Symbol]) -> dict[Symbol, str]:
        """Define where a row-major number stands in the dimensions of `symbols`."""
        names: dict[Symbol, str] = {}
        step = 1
        for one in reversed(symbols):
            shifted = number if step == 1 else f"{number} / {step}"
            out.line(f"const {self.index.type} {one.name} = {shifted} % {max(one.extent, 1)};")
            names[one] = one.name
            step *= max(one.extent, 1)
        return names

    def _key(self, out: Writer, number: str) -> dict[Symbol, str]:
        """Define `key`, the place of the key of a number, or the number of places if it is outside."""
        plan = self.plan
        names = self._walked(out, number, [plan.symbols[d] for d in plan.keyed])
        strides = dict(zip(plan.places, index.strides_of(plan.extents), strict=True))
        at = dict(zip(plan.roles.index_map, plan.vector, strict=True))
        inside: list[str] = []
        terms: list[str] = []
        for d in plan.places:
            place = f"at_{d}"
            parts = [self._component(at[d], names)] if d in at else []
            parts += [plan.symbols[plan.windows[d]].name] if d in plan.windows else []
            out.line(f"const long long {place} = {' + '.join(parts) or '0'};")
            inside += [f"{place} >= 0 && {place} < {plan.result.shape[d]}"] if d in at else []
            terms.append(f"{place} * {strides[d]}")
        held = f"(unsigned int)({' + '.join(terms) or '0'})"
        chosen = f"{' && '.join(inside)} ? {held} : {plan.count}u" if inside else held
        out.line(f"const unsigned int key = {chosen};")
        return names

    def _component(self, source: Source, names: Mapping[Symbol, str]) -> str:
        """A component of the index vector in 64 bits."""
        value = self._value(source, names)
        if source.dtype == dtypes.U64:
            return f"(long long){self.prelude.use('minimum')}<unsigned long long>({value}, {_BEYOND}ULL)"
        return f"(long long){value}"

    def _value(self, source: Source, names: Mapping[Symbol, str]) -> str:
        """An element as a register has it."""
        match source:
            case Fixed(dtype, value):
                return literal(value, dtype)
            case Counted(dtype, value):
                return scalars.convert(self.prelude, f"(long long){self._affine(value, names)}", dtypes.I64, dtype)
            case Stored(dtype):
                return scalars.from_memory(self.prelude, self._element(source, names), dtype)

    def _element(self, source: Source, names: Mapping[Symbol, str]) -> str:
        """An element as memory has it: its bits, where it lies in memory."""
        if isinstance(source, Stored):
            return f"{self.place[source.buffer]}[{self._affine(source.offset, names)}]"
        return scalars.to_memory(self.prelude, self._value(source, names), source.dtype)

    def _affine(self, value: Affine, names: Mapping[Symbol, str]) -> str:
        return self.index.write(value, names, _no_element)

    def _target(self, out: Writer, names: Mapping[Symbol, str]) -> None:
        """Define `to`, where in the result the element stands that `key` and the free symbols name."""
        plan, strides = self.plan, index.strides_of(self.plan.result.shape)
        kind, step, terms = self.index.type, 1, list[str]()
        for d, extent in reversed(list(zip(plan.places, plan.extents, strict=True))):
            terms.append(f"(({kind})key / {step} % {extent}) * {strides[d]}")
            step *= extent
        walked = dict(zip(plan.roles.window, plan.roles.window_operand, strict=True))
        terms += [f"{names[plan.symbols[d]]} * {strides[walked[d]]}" for d in plan.free]
        out.line(f"const {kind} to = {' + '.join(terms) or '0'};")

    def _free(self, out: Writer, number: str) -> dict[Symbol, str]:
        return self._walked(out, number, [self.plan.symbols[d] for d in self.plan.free])

    # ---- ways --------------------------------------------------------------------------------------------------------

    def _atomic(self) -> None:
        """Whole numbers: an order changes nothing."""
        if self.plan.is_private:
            self._private()
            return
        plan, kind = self.plan, "unsigned long long" if self.dtype == dtypes.I64 else register_type(self.dtype)
        name = {"add": "atomicAdd", "minimum": "atomicMin", "maximum": "atomicMax"}[plan.node.attrs["combiner"]]
        kind = kind if name == "atomicAdd" else register_type(self.dtype)

        def write(out: Writer) -> None:
            names = {**self._free(out, "i"), **self._key(out, f"i / {plan.run}")}
            with out.braces(f"if (key < {plan.count}u)"):
                self._target(out, names)
                value = self._value(plan.update, names)
                out.line(f"{name}(reinterpret_cast<{kind}*>({self.target} + to), ({kind}){value});")

        self._for_each("update", plan.keys * plan.run, write)

    def _private(self) -> None:
        """Blocks add up in shared memory what goes to few places, and then add that to the result."""
        plan, counts = self.plan, isinstance(self.plan.update, Fixed)
        elements, updates = plan.count * plan.run, plan.keys * plan.run
        blocks = max(1, min(_PRIVATE_BLOCKS, updates // (_PRIVATE_SHARE * max(elements, _THREADS))))
        kind = "unsigned long long" if self.dtype == dtypes.I64 else register_type(self.dtype)

        def each(count: int, first: str, step: int) -> str:
            return f"for ({self.index.type} i = {first}(int)threadIdx.x; i < {count}; i += {step})"

        def write(out: Writer) -> None:
            out.line(f"{each(elements, '', _THREADS)} counted[i] = 0;")
            out.line("__syncthreads();")
            start = f"({self.index.type})blockIdx.x * {_THREADS} + "
            with out.braces(each(updates, start, blocks * _THREADS)):
                names = {**self._free(out, "i"), **self._key(out, f"i / {plan.run}")}
                with out.braces(f"if (key < {plan.count}u)"):
                    value = "1u" if counts else f"(unsigned int){self._value(plan.update, names)}"
                    out.line(f"atomicAdd(counted + (key * {plan.run}u + (unsigned int)(i % {plan.run})), {value});")
            out.line("__syncthreads();")
            with out.braces(f"{each(elements, '', _THREADS)} if (counted[i])"):
                out.line(f"const unsigned int key = (unsigned int)(i / {plan.run});")
                names = self._free(out, "i")
                self._target(out, names)
                times = f" * ({kind}){self._value(plan.update, names)}" if counts else ""
                target = f"reinterpret_cast<{kind}*>({self.target} + to)"
                out.line(f"atomicAdd({target}, ({kind})counted[i]{times});")

        self._function("update", blocks, _THREADS, write, 4 * elements)

    def _winners(self) -> None:
        """The last key of each place, which is the greatest number; then only that one is written."""
        plan, winners = self.plan, self.names["winners"]

        def choose(out: Writer) -> None:
            self._key(out, "i")
            out.line(f"if (key < {plan.count}u) atomicMax({winners} + key, (unsigned int)i + 1u);")

        def write(out: Writer) -> None:
            names = {**self._free(out, "i"), **self._key(out, f"i / {plan.run}")}
            with out.braces(f"if (key < {plan.count}u && {winners}[key] == (unsigned int)(i / {plan.run}) + 1u)"):
                self._target(out, names)
                out.line(f"{self.target}[to] = {self._element(plan.update, names)};")

        self._for_each("choose", plan.keys, choose)
        self._for_each("write", plan.keys * plan.run, write)

    def _ranked(self) -> None:
        """The place of each key among all: those that are less, and equal ones before it."""
        keys = self.names["keys"]

        def rank(out: Writer) -> None:
            out.line(f"const unsigned int key = {keys}[i];")
            out.line("int rank = 0;")
            with out.braces(f"for (int j = 0; j < {self.plan.keys}; ++j)"):
                out.line(f"rank += {keys}[j] < key || ({keys}[j] == key && j < i);")
            out.line(f"{self.names['sorted_keys']}[rank] = key;")
            out.line(f"{self.names['order']}[rank] = i;")

        self._for_each("rank", self.plan.keys, rank)
        self._combine(self.names["sorted_keys"], self.names["order"])

    def _sorted(self) -> None:
        plan, counts = self.plan, self.names["counts"]
        now = self.names["keys"], self.names["order"]
        then = self.names["keys_then"], self.names["order_then"]
        for number in range(plan.passes):
            ends = f"{plan.keys}, {DIGIT_BITS * number}"
            count = f"count_tile({now[0]}, {ends}, {counts}, counted);"
            move = f"move_tile({now[0]}, {now[1]}, {then[0]}, {then[1]}, {ends}, {counts}, counted);"
            total = f"add_up({counts}, {DIGITS * plan.tiles}, counted);"
            self._called(f"count_{number}", plan.tiles, SORT_THREADS, count, radixsort.SHARED_BYTES)
            self._called(f"add_up_{number}", 1, radixsort.SCAN_THREADS, total, radixsort.SCAN_BYTES)
            self._called(f"move_{number}", plan.tiles, SORT_THREADS, move, radixsort.SHARED_BYTES)
            now, then = then, now
        self._combine(*now)

    def _called(self, suffix: str, blocks: int, threads: int, text: str, shared: int) -> None:
        self._function(suffix, blocks, threads, lambda out: out.line(text), shared)

    def _combine(self, keys: str, order: str) -> None:
        """Equal keys, in order: by the thread of the first, or, where only the last one counts, of that."""
        plan, combiner = self.plan, self.plan.node.attrs["combiner"]
        last = combiner == "set"
        if plan.has_long_runs and not last:
            self._combine_runs(keys, order, combiner)
            return
        other, edge = ("at + 1", f"at == {plan.keys - 1}") if last else ("at - 1", "at == 0")

        def write(out: Writer) -> None:
            out.line(f"const {self.index.type} at = i / {plan.run};")
            out.line(f"const unsigned int key = {keys}[at];")
            with out.braces(f"if (key < {plan.count}u && ({edge} || {keys}[{other}] != key))"):
                names = self._free(out, "i")
                self._target(out, names)
                if last:
                    out.line(f"{self.target}[to] = {self._updated(out, f'{order}[at]', names, self._element)};")
                else:
                    self._walk(out, keys, order, names, combiner)

        self._for_each("combine", plan.keys * plan.run, write)

    def _combine_runs(self, keys: str, order: str, combiner: str) -> None:
        """All keys of a place, in order, by a warp for each of their elements."""
        plan, kind, register = self.plan, self.index.type, register_type(self.dtype)
        warps, ahead = plan.count * plan.run, _WARP * _AHEAD

        def read(out: Writer, first: str, names: Mapping[Symbol, str]) -> None:
            """The updates from one on, dealt out to threads."""
            out.line("#pragma unroll")
            with out.braces(f"for (int n = 0; n < {_AHEAD}; ++n)"):
                out.line(f"const {kind} from = {first} + n * {_WARP} + lane;")
                with out.braces("if (from < end)"):
                    out.line(f"next[n] = {self._updated(out, f'{order}[from]', names, self._value)};")

        def write(out: Writer) -> None:
            out.line(f"const {kind} i = (({kind})blockIdx.x * {_THREADS} + (int)threadIdx.x) / {_WARP};")
            out.line(f"const int lane = (int)threadIdx.x % {_WARP};")
            out.line(f"if (i >= {warps}) return;")
            out.line(f"const unsigned int key = (unsigned int)(i / {plan.run});")
            out.line(f"const {kind} begin = keys_below({keys}, {plan.keys}, key);")
            out.line(f"const {kind} end = keys_below({keys}, {plan.keys}, key + 1u);")
            out.line("if (begin == end) return;")
            names = self._free(out, "i")
            self._target(out, names)
            out.line(f"{register} value = {scalars.from_memory(self.prelude, f'{self.target}[to]', self.dtype)};")
            out.line(f"{register} now[{_AHEAD}] = {{}}, next[{_AHEAD}] = {{}};")
            read(out, "begin", names)
            with out.braces(f"for ({kind} j = begin; j < end; j += {ahead})"):
                out.line("#pragma unroll")
                out.line(f"for (int n = 0; n < {_AHEAD}; ++n) now[n] = next[n];")
                read(out, f"j + {ahead}", names)
                out.line("#pragma unroll")
                with out.braces(f"for (int n = 0; n < {_AHEAD}; ++n)"):
                    out.line(f"for (int k = 0; k < {_WARP} && j + n * {_WARP} + k < end; ++k)")
                    update = scalars.shuffled("", "now[n]", self.dtype, "0xffffffffu", "k")
                    out.line(f"    value = {scalars.combine(self.prelude, combiner, 'value', update, self.dtype)};")
            stored = scalars.to_memory(self.prelude, "value", self.dtype)
            out.line(f"if (lane == 0) {self.target}[to] = {stored};")

        self.functions.append(_KEYS_BELOW)
        self._function("combine", -(-warps * _WARP // _THREADS), _THREADS, write)

    def _walk(self, out: Writer, keys: str, order: str, names: dict[Symbol, str], combiner: str) -> None:
        stored = scalars.from_memory(self.prelude, f"{self.target}[to]", self.dtype)
        out.line(f"{register_type(self.dtype)} value = {stored};")
        with out.braces(f"for ({self.index.type} j = at; j < {self.plan.keys} && {keys}[j] == key; ++j)"):
            update = self._updated(out, f"{order}[j]", names, self._value)
            out.line(f"value = {scalars.combine(self.prelude, combiner, 'value', update, self.dtype)};")
        out.line(f"{self.target}[to] = {scalars.to_memory(self.prelude, 'value', self.dtype)};")

    def _updated(
        self, out: Writer, number: str, names: Mapping[Symbol, str], read: Callable[[Source, Mapping[Symbol, str]], str]
    ) -> str:
        """The update of a key's number at the free symbols."""
        out.line(f"const {self.index.type} number = {number};")
        walked = self._walked(out, "number", [self.plan.symbols[d] for d in self.plan.keyed])
        text = read(self.plan.update, {**names, **walked})
        out.line(f"const auto update = {text};")
        return "update"


def _symbols(plan: ScatterPlan) -> list[str]:
    """What symbols, and places along dimensions, are called."""
    places = [f"at_{d}" for d in plan.places]
    return [one.name for one in (*plan.symbols, *plan.operand_symbols)] + places


def _without_workspaces(program: OpaqueProgram) -> list[Buffer]:
    return [buffer for buffer in program.buffers if buffer.space is not Space.WORKSPACE]


def _affines(plan: ScatterPlan) -> list[Affine]:
    """What must fit the type of indices."""
    sizes = (plan.result.size, plan.keys * max(plan.run, 1), plan.count)
    found = [index.of(Symbol("points", size + (1 << 20))) for size in sizes]
    sources = (plan.operand, plan.update, *plan.vector)
    return found + [source.offset for source in sources if isinstance(source, Stored)]


def _no_element(source: int) -> str:
    raise BackendError(f"a view reads its index from operand {source}: no view does")
