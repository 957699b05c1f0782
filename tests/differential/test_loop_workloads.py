"""The programs of datasets/workloads/loops, compiled: what NumPy gives, under policies, and for no steps."""

import pytest

import autofuse as af
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.measurement.workloads import WORKLOADS_DIRECTORY, arrays, discover

pytestmark = pytest.mark.usefixtures("on_server")

PROGRAMS = {program.name: program for program in discover(WORKLOADS_DIRECTORY / "loops")}
COUNTED = ("adi", "escape_time", "heat_2d", "jacobi_1d", "life", "lorenz", "pendulum", "seidel_2d")
"""Programs whose last argument is the number of steps, and that have an answer for none."""


def agree(program, plan, given):
    """The plan's answers are NumPy's within the graph's bounds, on arguments it was not compiled with."""
    expected = arrays(program.function(*given))
    bounds = bounds_of(plan.graph, arrays(given))
    found = arrays(plan(*given))
    for number, (one, other, bound) in enumerate(zip(found, expected, bounds, strict=True)):
        check(f"{program.name}[{number}]", one, other, bound)


@pytest.mark.parametrize("policy", ["analytical", pytest.param("unfused", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_program_gives_what_numpy_gives(name, policy):
    program = PROGRAMS[name]
    plan = af.compile(program.function, *program.inputs("small", 0), policy=policy, threads=2)
    agree(program, plan, program.inputs("small", 1))


@pytest.mark.parametrize("name", COUNTED)
def test_no_steps_give_the_start(name):
    program = PROGRAMS[name]
    given = (*program.inputs("small", 2)[:-1], 0)
    plan = af.compile(program.function, *given, threads=2)
    agree(program, plan, given)
