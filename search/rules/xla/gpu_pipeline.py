"""XLA:GPU's fusion before it searched by priority: a pipeline of rules, repeated until nothing changes.

Source: XLA, service/gpu/gpu_compiler.cc and the passes it names, end of 2022 to spring 2023. First come instruction
fusion without and with duplication, the fusion merger, and multi-output fusion. Then horizontal fusion of loops and of
reductions follows. Convolutions, everything opaque and products (but for those of `hlo_rewrites.py`) are library calls,
which take nothing in.

Not modelled, of what comes before fusion:
- GemmRewriter: a scale, a bias, a ReLU or GELU, or a matrix that is added (as in `a @ b + c @ d`) in a call of cuBLAS;
- the convolution rewriters: a bias, a scaled addend, an activation in one call of cuDNN;
- DotMerger: small products with an operand in common as one product, of which slices are taken;
- very long reductions as trees of reductions.

An op is in a kernel once and views are free here (see `unit_graph.py`). XLA would have some kernels compute a value at
two indices; they compute it as this code generator does. Some transposes, slices and broadcasts XLA writes to memory,
or ends a fusion with; here they are not written. The copies that XLA makes of one value in one fusion do not count
towards its budgets. What the model of time says of such copies is as XLA says it.
"""

from __future__ import annotations

from autofuse.lazydataclass import dataclass
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.rules.grouping import Grouping
from autofuse.search.rules.xla.fusion_merger import FusionMerger, MergeRule
from autofuse.search.rules.xla.gpu_fusible import RULES_2023, GpuRules
from autofuse.search.rules.xla.hlo_translation import Rewrites
from autofuse.search.rules.xla.horizontal_fusion import HorizontalInputFusion, HorizontalLoopFusion
from autofuse.search.rules.xla.instruction_fusion import InstructionFusion
from autofuse.search.rules.xla.multi_output_fusion import MultiOutputFusion
from autofuse.search.rules.xla.performance_model import A100, Gpu
from autofuse.search.rules.xla.unit_graph import Units

MOST_ROUNDS = 25
"""HloPassFix: runs of a pipeline until nothing changes, at most."""


@dataclass(frozen=True, slots=True)
class XlaClassic:
    """What XLA:GPU fused by its rules of 2022/23, on this code generator."""

    name: str = "rule:xla"
    merger: MergeRule = "time"
    """Whether fusions are merged where a model of time says so, as from 2022 on, or by bytes, as before."""
    rules: GpuRules = RULES_2023
    gpu: Gpu = A100
    """What the model of time is asked about."""

    def partition(self, context: Context) -> Partition:
        units = Units(Grouping(context), Rewrites(vectors=True))
        for pipeline in (self._fuse, self._fuse_horizontally):
            for _ in range(MOST_ROUNDS):
                if not pipeline(units):
                    break
        return units.grouping.partition()

    def _fuse(self, units: Units) -> bool:
        """One round of vertical and multi-output fusion; whether anything changed."""
        changed = InstructionFusion(units, self.rules, may_duplicate=False).run()
        changed |= InstructionFusion(units, self.rules, may_duplicate=True).run()
        changed |= FusionMerger(units, self.rules, self.gpu, self.merger).run()
        return changed | MultiOutputFusion(units, self.rules, self.gpu).run()

    def _fuse_horizontally(self, units: Units) -> bool:
        """One round of horizontal fusion; whether anything changed."""
        changed = HorizontalLoopFusion(units).run()
        return changed | HorizontalInputFusion(units, self.rules).run()
