"""HiGHS, through its own bindings: linear programs, and those with whole numbers, as arrays in and out.

`highspy` is imported in a hundredth of a second, `scipy.optimize`, which holds HiGHS too, in a quarter of one.
"""

from __future__ import annotations

import math

import numpy as np
from highspy import Highs, HighsLp, HighsModelStatus, HighsVarType, MatrixFormat, kHighsInf
from numpy.typing import NDArray

from autofuse.errors import SearchError
from autofuse.lazydataclass import dataclass

_GAP = 1e-6
"""Relative: how far a solution with whole numbers may be from the bound and still count as the best one."""


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """Minimise `cost` over columns between `low` and `high`, with each row at least `least`.

    Rows are compressed: the entries of row r are those from `starts[r]` to `starts[r + 1]` of `columns` and `values`.
    """

    cost: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    is_whole: NDArray[np.bool_]
    """Of columns: whether only whole numbers will do."""
    least: NDArray[np.float64]
    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]


@dataclass(slots=True)
class Optimum:
    """What HiGHS found."""

    message: str
    """How it ended, in its words."""
    optimal: bool
    """Whether nothing is cheaper."""
    late: bool
    """Whether the time was up."""
    x: NDArray[np.float64] | None
    """The cheapest point that was found; None if none was."""
    cost: float
    """Of that point; infinite if there is none."""
    bound: float
    """No point is cheaper. Minus infinity if nothing is known."""
    reduced: NDArray[np.float64] | None
    """Of columns: by how much the cost rises per unit. None for a program with whole numbers."""


def minimum(program: LinearProgram, seconds: float) -> Optimum:
    """Solve a program within so many seconds (`math.inf`: as long as it takes). It may have no point.

    Raises SearchError if HiGHS refuses the program.
    """
    solver = Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", _GAP)
    if seconds != math.inf:
        solver.setOptionValue("time_limit", float(seconds))
    whole = bool(program.is_whole.any())
    solver.passModel(_model(program, whole))
    solver.run()
    status, info = solver.getModelStatus(), solver.getInfo()
    message = solver.modelStatusToString(status)
    if status in (HighsModelStatus.kModelError, HighsModelStatus.kLoadError):
        raise SearchError(f"HiGHS refuses the program of {len(program.cost)} columns: {message}")
    optimal, late = status == HighsModelStatus.kOptimal, status == HighsModelStatus.kTimeLimit
    solution = solver.getSolution()
    feasible = solution.value_valid and math.isfinite(info.objective_function_value)
    is_point = optimal or (whole and feasible)  # a linear program that is late stands at no point of use
    return Optimum(
        message=message,
        optimal=optimal,
        late=late,
        x=np.array(solution.col_value) if is_point else None,
        cost=info.objective_function_value if is_point else math.inf,
        bound=info.mip_dual_bound if whole else info.objective_function_value if optimal else -math.inf,
        reduced=np.array(solution.col_dual) if optimal and not whole else None,
    )


def _model(program: LinearProgram, whole: bool) -> HighsLp:
    """The program as HiGHS takes it."""
    model = HighsLp()
    model.num_col_, model.num_row_ = len(program.cost), len(program.least)
    model.col_cost_, model.col_lower_, model.col_upper_ = program.cost, program.low, program.high
    model.row_lower_, model.row_upper_ = program.least, np.full(len(program.least), kHighsInf)
    rows = model.a_matrix_
    rows.format_ = MatrixFormat.kRowwise
    rows.num_col_, rows.num_row_ = model.num_col_, model.num_row_
    rows.start_, rows.index_, rows.value_ = program.starts, program.columns, program.values
    if whole:
        kinds = (HighsVarType.kContinuous, HighsVarType.kInteger)
        model.integrality_ = [kinds[int(number)] for number in program.is_whole]
    return model
