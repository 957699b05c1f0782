"""What a tuned plan must not lose to: the partitions of simple policies, and of the rules of other compilers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.errors import LegalityError, SearchError
from autofuse.ir.graph import Node
from autofuse.lazydataclass import dataclass
from autofuse.search.plugins.registry import policy_by_name
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition, SearchPolicy
from autofuse.search.policies.unfused import Unfused
from autofuse.search.space.candidates import AtomSet, Candidate

BASELINES: tuple[SearchPolicy, ...] = (Unfused(), Analytical())
"""The last is the best guess before anything is measured."""

RULES = ("rule:xla-cpu", "rule:inductor", "rule:grappler", "rule:xla", "rule:xla-priority")
"""Policies of other compilers, those that compile for this kind of device first."""


def rule_policies() -> tuple[SearchPolicy, ...]:
    """The rules of other compilers."""
    return tuple(policy_by_name(name) for name in RULES)


@dataclass(frozen=True, slots=True)
class Ruled:
    """What rules make of a program."""

    partitions: tuple[tuple[str, Partition], ...]
    """By name of the policy, or of the policies that agree on it: `rule:xla, rule:grappler`."""
    left_out: tuple[str, ...]
    """Policies that gave none, and why, in words."""


def decide_by_rules(
    context: Context, policies: Sequence[SearchPolicy], goes_on: Callable[[], bool] = lambda: True
) -> Ruled:
    """Ask each policy for its partition, as long as `goes_on`. Their kernels join the context's space."""
    found: dict[frozenset[object], tuple[str, Partition]] = {}
    left_out: list[str] = []
    for policy in policies:
        if not goes_on():
            left_out.append(f"{policy.name}: no time was left for it")
            continue
        try:
            partition = policy.partition(context)
        except (LegalityError, SearchError) as error:
            left_out.append(f"{policy.name}: {error}")
            continue
        work = kernels_of(partition)
        name, first = found.get(work, ("", partition))
        found[work] = (f"{name}, {policy.name}" if name else policy.name), first
        adopt(context, partition)
    return Ruled(tuple(found.values()), tuple(left_out))


def kernels_of(partition: Partition) -> frozenset[object]:
    """What a partition's kernels compute and write: equal for partitions that are the same plan."""
    return frozenset((_nodes(chosen.candidate), chosen.outputs) for chosen in partition.kernels)


def adopt(context: Context, partition: Partition) -> int:
    """Add a partition's kernels to the context's space. Returns how many are in it.

    A kernel that takes an atom of the space apart is not one of the space's; it stays what it is in its partition.
    """
    atom_of = context.space.atom_graph.atom_of
    count = 0
    for chosen in partition.kernels:
        nodes = _nodes(chosen.candidate)
        atoms: AtomSet = frozenset(atom_of[node] for node in nodes)
        whole = frozenset(node for atom in atoms for node in atom.nodes)
        if whole == nodes:
            count += context.kernels.try_add(atoms, chosen.outputs) is not None
    return count


def _nodes(candidate: Candidate) -> frozenset[Node]:
    return frozenset(node for atom in candidate.atoms for node in atom.nodes)
