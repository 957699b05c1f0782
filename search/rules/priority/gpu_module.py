"""The kernels of a program while XLA:GPU's passes merge them, and the same merges done to our groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from autofuse.fusion.atoms import FusionAtom
from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.grouping import Group, Grouping
from autofuse.search.rules.priority.instructions import CONSTANT, Instruction
from autofuse.search.rules.priority.kernel_bodies import Kernel, alone, combined, deduplicated
from autofuse.search.rules.priority.translation import Translation


@dataclass(slots=True)
class Module:
    """The kernels of a program while they merge. Merging replaces kernels; all others stay the same objects.

    Each merge is also done to the groups, as far as they take part: views are part of every group that reads them. It
    is left out where this code generator has no kernel for it.
    """

    grouping: Grouping
    outputs: tuple[Instruction, ...] = field(init=False)
    """What the program returns."""
    home: dict[Instruction, Kernel] = field(init=False)
    """The kernel that writes an instruction's result; absent for inputs, constants, and what only readers compute."""
    _readers: dict[Instruction, dict[Kernel, None]] = field(init=False)
    _next: int = field(init=False)

    def __post_init__(self) -> None:
        """Every instruction alone. Raises LegalityError for one that is no kernel."""
        translation = Translation(self.grouping)
        self.outputs = translation.outputs
        self._next = translation.first_free_number
        self.home, self._readers = {}, {}
        for instruction in translation.instructions():
            if not instruction.is_source:
                self._place(alone(instruction))

    def __iter__(self) -> Iterator[Kernel]:
        """The kernels, by number."""
        yield from sorted(dict.fromkeys(self.home.values()), key=_number)

    def users(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """The kernels that read a kernel's results, by number."""
        found = {user: None for instruction in kernel.written for user in self._readers.get(instruction, ())}
        return tuple(sorted(found, key=_number))

    def readers(self, instruction: Instruction) -> tuple[Kernel, ...]:
        """The kernels that read an instruction's result, by number."""
        return tuple(sorted(self._readers.get(instruction, ()), key=_number))

    def makers(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """The kernels whose results a kernel reads, in order."""
        return tuple(dict.fromkeys(self.home[p] for p in kernel.parameters if p in self.home))

    def is_output(self, kernel: Kernel) -> bool:
        """Whether a kernel writes something that the program returns."""
        return any(instruction in self.outputs for instruction in kernel.written)

    def has_path(self, start: Kernel, goal: Kernel, but: Kernel | None = None) -> bool:
        """Whether `goal` waits for `start`; ways that begin with `but` do not count."""
        todo = [user for user in self.users(start) if user is not but]
        seen = set(todo)
        while todo:
            kernel = todo.pop()
            if kernel is goal:
                return True
            fresh = [user for user in self.users(kernel) if user not in seen]
            seen.update(fresh)
            todo += fresh
        return False

    def post_order(self) -> list[Instruction]:
        """What kernels write and read, each after what it is computed from, beginning with the first output."""
        done: dict[Instruction, None] = {}
        todo = list(reversed(self.outputs))
        while todo:
            top = todo[-1]
            home = self.home.get(top)
            waiting = [p for p in home.parameters if p not in done] if home is not None and top not in done else []
            if waiting:
                todo += reversed(waiting)
            else:
                done[todo.pop()] = None
        return list(done)

    # ---- merging ---------------------------------------------------------------------------------------------------

    def fuse(self, producer: Kernel, consumers: Sequence[Kernel]) -> tuple[Kernel, ...]:
        """Compute `producer` within each of `consumers`; it stays if others read it. () if this is no kernel here."""
        if not self._fuse_groups(producer, consumers):
            return ()
        made = tuple(combined(producer, user, self._number_of(user)) for user in consumers)
        for old, new in zip(consumers, made, strict=True):
            self._replace((old,), new)
        if not self.users(producer) and not self.is_output(producer):
            self._remove(producer)
        return made

    def join(self, first: Kernel, second: Kernel) -> Kernel | None:
        """One kernel that writes what both wrote, as far as others read it; `second` may read `first`.

        None if that is no kernel here.
        """
        if not self._join_groups(first, second):
            return None
        kept = [i for i in first.written if i in self.outputs or any(u is not second for u in self.readers(i))]
        made = combined(first, second, self._number_of(second), kept)
        self._replace((first, second), made)
        return made

    def inline_constants(self) -> bool:
        """Every number becomes part of the kernels that read it (priority_fusion.cc: after the queue is empty)."""
        changed = False
        for kernel in self:
            numbers = [p for p in kernel.parameters if p.opcode == CONSTANT and p.type.size <= 1]
            if numbers and kernel.is_fusible and not kernel.is_bitcast:
                made = kernel
                for constant in numbers:
                    made = combined(alone(constant), made, self._number_of(made))
                self._replace((kernel,), made)
                changed = True
        return changed

    def clean(self) -> None:
        """Merge equal copies within kernels."""
        for kernel in self:
            made = deduplicated(kernel)
            if made is not kernel:
                self._replace((kernel,), made)

    def write_bitcasts_in_place(self) -> None:
        """Returned bitcasts take XLA no time: here, what makes their operands writes them."""
        for instruction in self.outputs:
            kernel = self.home.get(instruction)
            if kernel is None or not kernel.is_bitcast or kernel.parameters[0] not in self.home:
                continue
            maker, user = self.group(self.home[kernel.parameters[0]]), self.group(kernel)
            if maker is not None and user is not None and maker is not user:
                self.grouping.join(maker, user)

    # ---- groups ----------------------------------------------------------------------------------------------------

    def group(self, kernel: Kernel) -> Group | None:
        """The group that a kernel is on this side; None if it has only views."""
        atom = next((atom for root in kernel.roots if (atom := _atom_behind(kernel, root)) is not None), None)
        return None if atom is None else self.grouping.home(atom)

    def _fuse_groups(self, producer: Kernel, consumers: Iterable[Kernel]) -> bool:
        wanting = [kernel for kernel in consumers if kernel.atoms and not producer.atoms <= kernel.atoms]
        if not wanting:
            return True
        maker, users = self.group(producer), dict.fromkeys(map(self.group, wanting))
        if maker is None or not self._agree(producer, *wanting):
            return False
        return bool(self.grouping.fuse_all(maker, [user for user in users if user is not None]))

    def _join_groups(self, first: Kernel, second: Kernel) -> bool:
        if not self._agree(first, second):
            return False
        one, other = self.group(first), self.group(second)
        return one is None or other is None or one is other or self.grouping.join(one, other) is not None

    def _agree(self, *kernels: Kernel) -> bool:
        """Whether groups compute what kernels do: not so if two views of one value, kernels in XLA, went two ways."""
        groups = [(kernel, self.group(kernel)) for kernel in kernels]
        return all(kernel.atoms == (frozenset() if group is None else group.atoms) for kernel, group in groups)

    # ---- bookkeeping -----------------------------------------------------------------------------------------------

    def _number_of(self, kernel: Kernel) -> int:
        if kernel.is_fusion:
            return kernel.number
        self._next += 1
        return self._next

    def _place(self, kernel: Kernel) -> None:
        for instruction in kernel.written:
            self.home[instruction] = kernel
        for parameter in kernel.parameters:
            self._readers.setdefault(parameter, {})[kernel] = None

    def _replace(self, old: Iterable[Kernel], new: Kernel) -> None:
        for kernel in old:
            self._remove(kernel)
        self._place(new)

    def _remove(self, kernel: Kernel) -> None:
        for instruction in kernel.written:
            if self.home.get(instruction) is kernel:
                del self.home[instruction]
        for parameter in kernel.parameters:
            del self._readers[parameter][kernel]


def _atom_behind(kernel: Kernel, at: int) -> FusionAtom | None:
    """What a step is a view of, in the same kernel."""
    while at >= 0:
        step = kernel.steps[at]
        if step.instruction.atom is not None or not step.operands:
            return step.instruction.atom
        at = step.operands[0]
    return None


def _number(kernel: Kernel) -> int:
    return kernel.number
