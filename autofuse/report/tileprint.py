"""TileProgram as text, for people: dumps, bug reports and `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol, Variable
from autofuse.ir.optable import role_of
from autofuse.ir.pieces import Condition
from autofuse.lower.librarykernels import coded_in
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import (
    ArgReduce,
    Carry,
    Constant,
    Leave,
    Load,
    Map,
    Next,
    Position,
    Reduce,
    Repeat,
    Scan,
    Statement,
    Store,
    Test,
)
from autofuse.lower.tile import Dot, Matrix, OpaqueProgram, Phase, RowGroup, Stage, Step, TileProgram


def print_program(program: TileProgram | OpaqueProgram) -> str:
    """The program, one statement per line. The same program gives the same text in every process."""
    return "\n".join(_program_lines(program)) + "\n"


def print_affine(value: Affine) -> str:
    """An index expression: `4096*i0 + k0 + 3`."""
    parts = [_term(variable, coefficient) for variable, coefficient in value.terms]
    if value.constant or not parts:
        parts.append(str(value.constant))
    return " + ".join(parts).replace("+ -", "- ")


def loop_lines(program: TileProgram | OpaqueProgram) -> list[str]:
    """The loop structure without statements, a line per phase: grid, row block, and the steps' loops."""
    if isinstance(program, OpaqueProgram):
        is_control = any(role_of(node).is_control for node in program.graph.nodes)
        if program.is_coded:
            return [_coded_line(program)]
        return ["left to the interpreter" if is_control else "one call into the interpreter's library"]
    lines: list[str] = []
    for number, launch in enumerate(program.launches):
        prefix = f"launch {number}: " if len(program.launches) > 1 else ""
        lines += [f"{prefix}{_phase_head(phase)}: {'; '.join(_step_loops(phase))}" for phase in launch]
    return lines


def _coded_line(program: OpaqueProgram) -> str:
    node = coded_in(program.graph)
    assert node is not None
    inside = [other.op for other in program.graph.nodes if other is not node and role_of(other).computes]
    return f"{node.op} by loops of its own" + (f", which compute {', '.join(inside)}" if inside else "")


def _program_lines(program: TileProgram | OpaqueProgram) -> Iterator[str]:
    yield f"kernel {program.name}"
    for buffer in program.buffers:
        yield f"  {buffer.space.value} {buffer.name}: {buffer.type}"
    if isinstance(program, OpaqueProgram):
        yield f"  {'code' if program.is_coded else 'call'} {', '.join(node.op for node in program.graph.nodes)}"
        return
    yield f"  schedule {_schedule(program.schedule)}"
    for number, launch in enumerate(program.launches):
        indent = "  "
        if len(program.launches) > 1:
            yield f"  launch {number}"
            indent = "    "
        for phase in launch:
            yield f"{indent}{_phase_head(phase)}"
            for step in phase.steps:
                yield from _step_lines(step, indent + "  ")


def _schedule(schedule: Schedule) -> str:
    decisions = [f"{key}={value}" for key, value in schedule.to_json().items()]
    return " ".join(decisions) or "default"


def _phase_head(phase: Phase) -> str:
    vectorised = phase.vectorised.name if phase.vectorised is not None else "stage"
    block = phase.row_block
    rows = f" row_block({block.symbol.name} by {block.size})" if block is not None else ""
    sweep = phase.sweep
    swept = f" sweep(steps {sweep.steps[0]} to {sweep.steps[-1]} by {sweep.tile})" if sweep is not None else ""
    again = phase.iterations
    if again is not None:
        rows += f" {_symbols((again.symbol,))} for steps {again.steps[0]} to {again.steps[-1]}"
    return f"phase grid({_symbols(phase.grid)}) vectorised={vectorised}{rows}{swept}"


def _step_loops(phase: Phase) -> Iterator[str]:
    for step in phase.steps:
        if isinstance(step, Dot):
            yield f"dot [{step.rows}x{step.depth}]x[{step.depth}x{step.columns}] {step.dtype.name}"
        else:
            yield from (f"stage({_loops(stage)})" for stage in step.stages)


def _loops(stage: Stage) -> str:
    leave = stage.leave
    if leave is None:
        return _symbols(stage.symbols)
    return "until all is settled" if leave.required else f"{_symbols(stage.symbols)}, or until all is settled"


def _step_lines(step: Step, indent: str) -> Iterator[str]:
    if isinstance(step, RowGroup):
        for stage in step.stages:
            yield from _stage_lines(stage, indent)
        return
    sizes = f"rows={step.rows} columns={step.columns} depth={step.depth}"
    product = f"{_matrix(step.lhs)} x {_matrix(step.rhs)} {step.dtype.name} {sizes}"
    yield f"{indent}dot {_matrix(step.out)} {'+=' if step.accumulate else '='} {product}"


def _matrix(matrix: Matrix) -> str:
    return f"{matrix.buffer}[{print_affine(matrix.offset)} + i*{matrix.row_stride} + j*{matrix.column_stride}]"


def _stage_lines(stage: Stage, indent: str) -> Iterator[str]:
    vectorised = stage.vectorised.name if stage.vectorised is not None else "none"
    stabilised = f" stabilised by %{stage.stabiliser}" if stage.stabiliser is not None else ""
    yield f"{indent}stage ({_loops(stage)}) vectorised={vectorised}{stabilised} {{"
    for statement in stage.body:
        yield f"{indent}  {_statement(statement)}"
    yield f"{indent}}}"


def _statement(statement: Statement) -> str:
    match statement:
        case Store(buffer, offset, value, mask):
            return f"store {buffer}[{print_affine(offset)}] %{value}{_where(mask)}"
        case Next(carry, value):
            return f"next %{carry} = %{value}"
        case Leave(settled, required):
            return f"{'leave' if required else 'may leave'} where %{settled}"
        case Repeat(symbol, where, settled):
            return f"repeat {symbol.name} where %{where} until %{settled}"
        case _:
            return f"%{statement.result} = {_right_side(statement)}"


def _right_side(statement: Statement) -> str:
    match statement:
        case Constant(_, dtype, value):
            return f"constant {value} {dtype.name}"
        case Position(_, dtype, value):
            return f"position {print_affine(value)} {dtype.name}"
        case Test(_, conditions):
            return f"test {' and '.join(map(_condition, conditions)) or 'true'}"
        case Load(_, dtype, buffer, offset, mask, fill):
            other = f" else %{fill}" if fill is not None else ""
            return f"load {buffer}[{print_affine(offset)}] {dtype.name}{_where(mask)}{other}"
        case Map(_, dtype, opcode, operands, fast):
            return f"{opcode}{' fast' if fast else ''} {' '.join(f'%{number}' for number in operands)} {dtype.name}"
        case _:
            return _reduction(statement)


def _reduction(statement: Statement) -> str:
    match statement:
        case Reduce(_, dtype, combiner, operand):
            return f"reduce {combiner} %{operand} {dtype.name}"
        case ArgReduce(_, dtype, direction, operand, position):
            return f"{direction} %{operand} at {print_affine(position)} {dtype.name}"
        case Scan(_, dtype, combiner, operand, reverse):
            return f"scan {combiner} %{operand} {dtype.name}{' reverse' if reverse else ''}"
        case Carry(_, dtype, initial, reverse):
            return f"carry {dtype.name} from %{initial}{' reverse' if reverse else ''}"
        case _:
            raise AssertionError(f"{type(statement).__name__} is no statement with a result")


def _where(mask: int | None) -> str:
    return "" if mask is None else f" where %{mask}"


def _condition(condition: Condition) -> str:
    value = print_affine(condition.value)
    parts = [f"{condition.lo} <= {value} < {condition.hi}"]
    if condition.multiple > 1:
        parts.append(f"({value}) mod {condition.multiple} == {condition.remainder}")
    return " and ".join(parts)


def _symbols(symbols: tuple[Symbol, ...]) -> str:
    return ", ".join(f"{symbol.name}<{symbol.extent}" for symbol in symbols)


def _term(variable: Variable, coefficient: int) -> str:
    text = _variable(variable)
    if coefficient == 1:
        return text
    return f"-{text}" if coefficient == -1 else f"{coefficient}*{text}"


def _variable(variable: Variable) -> str:
    match variable:
        case Symbol(name, _):
            return name
        case Quotient(value, divisor):
            return f"(({print_affine(value)}) div {divisor})"
        case Remainder(value, divisor):
            return f"(({print_affine(value)}) mod {divisor})"
        case Element(source, _, lo, hi):
            return f"clamp(%{source}, {lo}, {hi})"
