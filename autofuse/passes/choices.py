"""What the clean-up can do in several ways: the choices on which it depends what fusion can do, and how to write them.

None is better in general, so none is a rule; each has programs that it pays for:

- `columns=joined` (`x @ wq`, `x @ wk`, `x @ wv` as one product): narrow products fill registers, the left operand is
  read once. Costs a copy of the matrices that are no constants.
- `columns=split` (slices of `x @ w` as products with slices of `w`): what is done with the gates of a recurrent cell
  goes column by column, so that it can be cut into tiles, and shared by all workers where rows are few.
- `steps=joined` (`x[t] @ w` for all t as one product): a matrix that many small products read is read once. The
  product of all steps goes through memory.
- `depths=apart` (`concatenate([x, h]) @ w` as `x @ w[:k] + h @ w[k:]`, a convolution as a sum of shifted products): no
  row of the concatenation is packed, and a part that does not change can be computed elsewhere. Short depths cost more.
- `convolutions=products` (a convolution as a product of its patches, channels last, whatever layout the program has):
  long vectors where channels are first, and what lies between convolutions is channels last too. Patches that several
  kernels would pack go through memory.
- `convolutions=last` (convolutions with channels last, of transposes that are stored): a chain transposes once at each
  end, the kernel is laid out once in a call, and patches are copied in long pieces. Costs passes over memory.
- `concatenations=parts` (a reduction of a concatenation as those of its parts): loops without masks, parts in kernels
  of their own. What the parts share with other readers of the concatenation may be computed twice.
- `transposes=stored`: what several kernels read across memory lines is transposed once. Costs a pass over memory.
- `tables=large`: larger tables are computed ahead of time instead of in every call. The plan grows by them.
- `loops=distributed` (products and reductions of a loop that are on no recurrence, or that iterations only add up, are
  done for all iterations at once, before the loop or behind it): one product in place of many small ones, and what is
  left may be a kernel. Arrays of all iterations go through memory.
- `unrolled=4` (so many steps of a stencil in each iteration of a loop that a driver runs): a tile of the array goes
  through them while it is in a core's caches. What tiles need of one another is computed twice.
- `unrolled=all` (all iterations of a short loop that a driver would run, of whatever is inside): no step of the driver
  between them, and kernels that are of more than one. The plan has as many more kernels. Looked for without being asked
  where the driver's steps are much of the time (`search/variants/shortloops.py`).

One saves memory, and is made where a limit asks for it:

- `kept=products`, `kept=2` (what waits long for its last readers, as a forward pass does for the backward one, is
  computed again, from products and reductions, or from what is alive at two places before): less is alive at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from autofuse.errors import ArgumentError, did_you_mean
from autofuse.lazydataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class Choices:
    """One way to clean up. The defaults are what `clean` does by itself."""

    columns: Literal["apart", "joined", "split"] = "apart"
    """Products of one left operand with several matrices; products that are read in slices of their columns."""
    steps: Literal["apart", "joined"] = "apart"
    """Products of the slices of one array with one matrix."""
    depths: Literal["joined", "apart"] = "joined"
    """Products that are added up, with neighbouring rows of one matrix."""
    concatenations: Literal["whole", "parts"] = "whole"
    """Concatenations that are reduced."""
    transposes: Literal["read", "stored"] = "read"
    """Transposed values that several readers have."""
    tables: Literal["small", "large"] = "small"
    """What is computed from constants ahead of time."""
    loops: Literal["whole", "distributed"] = "whole"
    """Products and reductions in loops that no recurrence needs."""
    unrolled: Literal["1", "2", "4", "8", "all"] = "1"
    """Iterations of loops of stencils that become one; or all of any loop that is no kernel and short."""
    kept: Literal["all", "products", "1", "2", "4", "8"] = "all"
    """Values that are read again far behind."""
    convolutions: Literal["direct", "products", "last"] = "direct"
    """Convolutions without groups."""

    @property
    def label(self) -> str:
        """What differs from the defaults, as `read_choices` reads it: `columns=joined,tables=large`."""
        own, usual = _as_mapping(self), _as_mapping(DEFAULT)
        return ",".join(f"{name}={own[name]}" for name in _VALUES if own[name] != usual[name]) or "default"

    def joined_with(self, other: Choices) -> Choices:
        """Those of `other` that are no defaults, and these choices where it has none."""
        usual = _as_mapping(DEFAULT)
        changes: dict[str, Any] = {name: value for name, value in _as_mapping(other).items() if value != usual[name]}
        return replace(self, **changes)


_VALUES: Mapping[str, tuple[str, ...]] = {
    "columns": ("apart", "joined", "split"),
    "steps": ("apart", "joined"),
    "depths": ("joined", "apart"),
    "concatenations": ("whole", "parts"),
    "transposes": ("read", "stored"),
    "tables": ("small", "large"),
    "loops": ("whole", "distributed"),
    "unrolled": ("1", "2", "4", "8", "all"),
    "kept": ("all", "products", "1", "2", "4", "8"),
    "convolutions": ("direct", "products", "last"),
}
"""The values of each choice, the default first."""
_SAVING = "kept"
"""The choice that takes time to save memory."""

DEFAULT = Choices()


def alternatives() -> Sequence[Choices]:
    """For each value of a choice about time but the default, the choices that differ from the defaults in it alone."""
    changes: list[dict[str, Any]] = [
        {name: value} for name, values in _VALUES.items() if name != _SAVING for value in values[1:]
    ]
    return [replace(DEFAULT, **change) for change in changes]


def savings() -> Sequence[Choices]:
    """The same of the choice about memory: what computes least again comes first."""
    changes: list[dict[str, Any]] = [{_SAVING: value} for value in _VALUES[_SAVING][1:]]
    return [replace(DEFAULT, **change) for change in changes]


def read_choices(text: str) -> Choices:
    """`default`, or `name=value` pairs separated by commas. Raises ArgumentError for anything else."""
    changes: dict[str, Any] = {}
    for part in [] if text.strip() == "default" else text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in _VALUES:
            raise ArgumentError(
                f"{text!r:.80}: {name!r:.80} is no choice of the clean-up{_nearest(name, list(_VALUES))}"
            )
        if value not in _VALUES[name]:
            *first, last = _VALUES[name]
            raise ArgumentError(f"{text!r:.80}: {name} is {', '.join(first)} or {last}, not {value!r:.80}")
        changes[name] = value
    return replace(DEFAULT, **changes)


def _as_mapping(choices: Choices) -> Mapping[str, str]:
    return {name: getattr(choices, name) for name in _VALUES}


def _nearest(name: str, known: Sequence[str]) -> str:
    return did_you_mean(name, known) or f"; there are {', '.join(known)}"
