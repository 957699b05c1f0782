"""The parameters of the study of rules against search."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cells import OFF, Cell, all_cells
from settings import require

HERE = Path(__file__).resolve().parent
FREE = (
    *("programs", "ablations", "rounds", "joins", "shared", "folds", "small_kernels", "small_bytes"),
    *("target_all", "target_marked"),
)
"""What may differ between a run and the one that carries it on."""


@dataclass(frozen=True, slots=True)
class Study:
    """The entries of study.toml."""

    programs: tuple[str, ...]
    """Of datasets/workloads."""
    size: str
    """Of the programs' arguments: "full" or "small"."""
    seed: int
    """Of the programs' arguments."""
    rules: tuple[str, ...]
    """Policies that follow another compiler's rules."""
    ablations: tuple[str, ...]
    """What the measuring search is also run without."""
    budget_s: float
    """Most seconds of tuning for every plan alike: enough for the measurements, as a rule."""
    max_trials: int
    """Measurements for every plan of a program alike, also of kernels that were measured for an earlier plan ..."""
    trials_per_operation: float
    """... and so many more for every operation of the program: large ones have more kernels to measure."""
    tuning_seed: int
    """Of the searches."""
    rounds: int
    """Timing processes per program."""
    blocks: int
    """Interleaved repetitions in each."""
    block_ms: float
    """Timed milliseconds per plan and repetition."""
    joins: int
    """Marked programs: this many concatenations ..."""
    shared: int
    """... or values of several users ..."""
    folds: int
    """... or reductions in a chain ..."""
    small_kernels: int
    """... or operations with results ..."""
    small_bytes: int
    """... below this size."""
    target_all: float
    """The geometric mean of best rule over measured is to be this at least, over all programs ..."""
    target_marked: float
    """... and this over the marked ones."""

    def __post_init__(self) -> None:
        """Raises ArgumentError for a parameter that makes no sense."""
        require(self.size in ("full", "small"), "size", '"full" or "small"', self.size)
        for name in ("budget_s", "max_trials", "rounds", "blocks", "block_ms", "target_all", "target_marked"):
            require(getattr(self, name) > 0, name, "above zero", getattr(self, name))
        require(self.trials_per_operation >= 0, "trials_per_operation", "zero or more", self.trials_per_operation)
        require(bool(self.rules), "rules", "at least one policy", self.rules)
        unknown = [name for name in self.ablations if name not in OFF]
        require(not unknown, "ablations", f"among {', '.join(OFF)}", self.ablations)

    @property
    def cells(self) -> list[Cell]:
        """What is made for every program."""
        return all_cells(self.rules, self.ablations)
