"""Objects that a traced function makes, and dataclasses among its arguments: their methods are traced as it is."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from autofuse.frontend.traced import trace
from tests.fixtures.pythonprograms import difference
from tests.frontend.rolled import loops, run

N = 20
RNG = np.random.default_rng(7)


@dataclass
class Particle:
    x: float
    v: np.ndarray
    n: int = 0
    log: list = field(default_factory=list)

    def step(self, force):
        self.v = self.v + 0.1 * force
        self.x = self.x + self.v.sum()
        self.n += 1
        if self.x > 5:
            self.x = 0.0
        return self

    @property
    def energy(self):
        return 0.5 * self.x**2

    @classmethod
    def still(cls, n):
        return cls(0.0, np.zeros(n))

    @staticmethod
    def half(z):
        return z * 0.5


class Base(abc.ABC):
    scale = 2.0
    weights = np.arange(3.0)

    def __init__(self, n):
        self.h = np.zeros(n)
        self.t = 0

    @abc.abstractmethod
    def f(self, x): ...

    def run(self, x):
        for i in range(N):
            self.h = np.tanh(self.h + self.f(x[i]))
            self.t += 1
        return self.h


class Cell(Base):
    def f(self, x):
        return x * self.scale + self.weights


class Child(Cell):
    def __init__(self, n):
        super().__init__(n)
        self.k = 0.5

    def f(self, x):
        return super().f(x) * self.k


class Old(Cell):
    def __init__(self, n):
        Cell.__init__(self, n)
        self.h[0] = 1.0


class Counting:
    """Whatever is asked of it, it counts."""

    def __init__(self):
        self.count, self.held = 0, {}

    def _seen(self, value):
        self.count += 1
        return value

    def __len__(self):
        return self._seen(3)

    def __contains__(self, item):
        return self._seen(True)

    def __bool__(self):
        return self._seen(True)

    def __iter__(self):
        return iter(self._seen([1.0, 2.0]))

    def __lt__(self, other):
        return self._seen(True)

    def __add__(self, other):
        return self._seen(0.5)

    def __enter__(self):
        return self._seen(self)

    def __exit__(self, *_):
        return False

    def __call__(self, x):
        return self._seen(x)

    def __setitem__(self, key, value):
        self.held[key] = value

    def __getitem__(self, key):
        return self.held[key]

    def __getattr__(self, name):
        if name == "made_up":
            return self._seen(2.0)
        raise AttributeError(name)

    @property
    def asked(self):
        return self._seen(1.5)


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a

    def add(self, x):
        self.a = self.a + x


class Environment:
    def __init__(self):
        self.state, self.done, self.steps = np.zeros(4), False, 0

    def step(self, action):
        x, v, angle, w = self.state
        force = 10.0 if action == 1 else -10.0
        v = v + 0.02 * force * np.cos(angle)
        w = w + 0.02 * (np.sin(angle) - 0.1 * force)
        self.state = np.array([x + 0.02 * v, v, angle + 0.02 * w, w])
        self.steps += 1
        self.done = bool(abs(self.state[2]) > 0.02)
        return self.state, 1.0, self.done


def attributes_and_properties(x):
    p = Particle(0.5, x[:3] * 1)
    for i in range(N):
        p.step(x[i])
        x[i] = p.energy
    return p.x, p.v, p.n, x


def several(x):
    made = [Particle(x[i], np.ones(2)) for i in range(4)]
    for i in range(N):
        for p in made:
            p.step(x[i])
    return np.array([p.x for p in made])


def made_by_a_class_method(x):
    p = Particle.still(3)
    for i in range(N):
        p.step(x[i])
    return p.x, p.v, Particle.half(x)


def inherited(x):
    cells = [Cell(3), Child(3), Old(3)]
    c = cells[1]
    said = isinstance(c, Base), type(c) is Child, c.__class__.__name__
    return [cell.run(x) for cell in cells], [cell.t for cell in cells], said


def special_methods(x):
    g = Counting()
    g["a"] = x[0]
    for i in range(N):
        with g:
            x[i] = x[i] * len(g) * (1 in g) + (g + 1) + max(*g)
        for z in g:
            x[i] = x[i] * z * (2 if g else 1) + (g < 1) * g.asked + g.made_up
        first, _ = g
        x[i] = g(x[i]) * first * 1e-3
        g["a"] = g["a"] * 0.5 + x[i]
    return g.count, x, g["a"]


def on_one_side(x):
    p = Particle(0.5, x[:3] * 1)
    if x[0] > 0.5:
        p.step(x[1])
    return p.x, p.n, p.v


def with_slots(x):
    s = Slotted(0.0)
    for i in range(N):
        s.add(x[i])
    return s.a


def of_a_class_in_the_function(x):
    calls = 0

    class Total:
        def __init__(self):
            self.s = 0.0

        def add(self, value):
            nonlocal calls
            calls += 1
            if value > 0.5:
                self.s = self.s + value
            else:
                self.s = self.s * 0.5

    total = Total()
    for i in range(N):
        total.add(x[i])
    return total.s, calls


def an_environment(x):
    e, total = Environment(), 0.0
    for t in range(N):
        _, reward, done = e.step(1 if x[t] > 0.5 else 0)
        total += reward
        if done:
            break
    return total, e.state, e.steps


PROGRAMS = {
    attributes_and_properties: ["scan 20"],
    several: ["scan 20"],
    made_by_a_class_method: ["scan 20"],
    inherited: ["scan 20"] * 3,
    special_methods: ["scan 20"],
    on_one_side: [],
    with_slots: [],
    of_a_class_in_the_function: ["scan 19"],
    an_environment: ["while"],
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_methods_of_objects_are_traced(program: Callable[..., Any]) -> None:
    traced = trace(program, RNG.random(N))
    assert loops(traced) == PROGRAMS[program]
    for _ in range(3):
        x = RNG.random(N)
        own = x.copy()
        wanted = program(own)
        got, (left,) = run(traced, (x,))
        assert not difference(wanted, got, "result", rounded=True)
        np.testing.assert_allclose(left, own, rtol=1e-9)


def test_what_returns_an_object_gets_the_users_class() -> None:
    def function(x):
        return Particle(0.5, x * 1).step(1.0)

    traced = trace(function, RNG.random(3))
    got, _ = run(traced, (np.ones(3),))
    assert type(got) is Particle
    assert math.isclose(got.x, 3.8)


def test_methods_of_dataclasses_among_arguments_are_traced() -> None:
    def function(p, x):
        y = p.x
        for i in range(N):
            y = p.half(y) + p.energy * x[i] if x[i] > 0.5 else y
        return y

    x = RNG.random(N)
    traced = trace(function, Particle(np.float64(2.0), np.ones(3)), x)
    assert loops(traced) == ["scan 20"]
    got, _ = run(traced, (Particle(np.float64(2.0), np.ones(3)), x))
    np.testing.assert_allclose(got, function(Particle(np.float64(2.0), np.ones(3)), x))
