"""The parameters of the study of search quality."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from settings import require

HERE = Path(__file__).resolve().parent
FREE = ("programs", "workloads", "policies", "rounds", "compile_repeats", "target_shares", "target_gaps")
"""What may differ between a run and the one that carries it on."""


@dataclass(frozen=True, slots=True)
class Study:
    """The entries of study.toml."""

    programs: tuple[str, ...]
    """Files in programs/, whose spaces are measured whole."""
    workloads: tuple[str, ...]
    """Programs of datasets/workloads whose search is timed."""
    size: str
    """Of the programs' arguments: "full" or "small"."""
    seed: int
    """Of the programs' arguments."""
    space_rounds: int
    """Processes that each measure the whole space; a kernel's time is the median over them."""
    most_partitions: int
    """Enumeration stops after so many partitions."""
    repeats: int
    """How often, in all, a partition may compute an atom beyond its first time."""
    top: int
    """How many of the best partitions run end to end."""
    policies: tuple[str, ...]
    """Held against the best; the measuring search besides."""
    trials: tuple[float, ...]
    """Measurements that the search is allowed, as shares of the program's classes of kernels."""
    tuning_seeds: tuple[int, ...]
    """Of the search; each makes its own measurements."""
    budget_s: float
    """Seconds that the search is allowed: enough for the measurements to be what binds."""
    target_shares: tuple[float, ...]
    """A search that has measured at most this share of the classes ..."""
    target_gaps: tuple[float, ...]
    """... is to be at most this far from the best."""
    rounds: int
    """Timing processes per program."""
    blocks: int
    """Interleaved repetitions in each."""
    block_ms: float
    """Timed milliseconds per plan and repetition."""
    compile_repeats: int
    """Processes per workload that time the search."""
    replay_trials: float
    """Measurements of the search that is repeated from its records, as a share of the classes."""

    def __post_init__(self) -> None:
        """Raises ArgumentError for a parameter that makes no sense."""
        require(self.size in ("full", "small"), "size", '"full" or "small"', self.size)
        for name in (
            "space_rounds",
            "most_partitions",
            "top",
            "rounds",
            "blocks",
            "compile_repeats",
            "budget_s",
            "block_ms",
        ):
            require(getattr(self, name) > 0, name, "above zero", getattr(self, name))
        require(self.repeats >= 0, "repeats", "zero or more", self.repeats)
        require(all(share > 0 for share in self.trials), "trials", "shares above zero", self.trials)
        require(self.replay_trials > 0, "replay_trials", "above zero", self.replay_trials)
        require(
            len(self.target_shares) == len(self.target_gaps),
            "target_gaps",
            "as long as target_shares",
            self.target_gaps,
        )
