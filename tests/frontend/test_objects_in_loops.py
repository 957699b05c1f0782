"""What Python holds of arrays: tuples, dicts, lists and attributes that loops change, and comprehensions."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace
from autofuse.ir.interpreter import interpret
from tests.frontend.rolled import agree, loops

RNG = np.random.default_rng(11)


def dicts(x):
    s = {"mean": np.zeros(2), "n": 0.0, "name": "s"}
    for i in range(20):
        s["n"] = s["n"] + 1.0
        s["mean"] = s["mean"] + (x[i : i + 2] - s["mean"]) / s["n"]
        s["n"] *= 1.0
    return s["mean"], s["n"]


def parameters(x):
    p = {"w": np.zeros(3), "b": x[0]}
    m = {k: np.zeros_like(v) for k, v in p.items()}
    for t in range(1, 20):
        for k in p:
            m[k] = 0.9 * m[k] + x[t] * (p[k] - 1.0)
            p[k] = p[k] - 0.1 * m[k] / (1 - 0.9**t)
    return p["w"], p["b"], m["w"]


def slots(x):
    z = [[0.0, 0.0], [x[0], 1.0]]
    out = np.zeros(20)
    for i in range(20):
        v = x[i]
        for k in range(2):
            w = 0.5 * v + z[k][0]
            z[k][0] = z[k][-1] - 0.2 * w
            z[k][-1] += 0.1 * v
            v = w
        out[i] = v
    return out, z[1][0]


def attributes(x):
    body = SimpleNamespace(p=x[:3] * 1, v=np.zeros(3), e=0.0)

    def step(dt):
        body.v -= dt * body.p
        body.p = body.p + dt * body.v
        body.e += (body.v**2).sum()

    for _ in range(20):
        step(0.1)
    return body.p, body.v, body.e


def states(x):
    state, history = (990.0, (x[0], x[1:3] * 1)), []
    for i in range(20):
        a, (b, c) = state
        state = (a - b * 0.5, (b + x[i], c * 0.9 + a * 1e-3))
        history.append((i, state[0], b))
    return state[1][1], np.array(history), np.array([h[2] for h in history])


def in_branches(x):
    s = {"hits": 0, "v": x[:2] * 1}
    for i in range(20):
        if x[i] > 0.5:
            s["hits"] = s["hits"] + 1
            s["v"] = s["v"] * 0.5
        else:
            s["v"] = s["v"] + 1.0
    return s["hits"], s["v"]


def at_the_top(x):
    box = SimpleNamespace(t=x[0])
    pair = [x[1], 2.0]
    if x[2] > 0.5:
        box.t = box.t * 2
        pair[1] = x[3]
    else:
        pair[0] = pair[0] + 1
        pair[1] = 4.0 * x[0]
    return box.t, pair[0], pair[1]


def ended_by_data(x):
    s = {"t": 0.0, "n": x[0]}
    while s["t"] < 3.0:
        s["t"] = s["t"] + s["n"] + 0.1
        s["n"] = s["n"] * 0.9 + 0.01
    return s["t"], s["n"]


def nested(x):
    s = {"a": np.float64(0.0)}
    for i in range(20):
        for j in range(20):
            s["a"] = s["a"] * 0.9 + x[i] * x[j]
        s["a"] = s["a"] - x[i]
    return s["a"]


@pytest.mark.parametrize(
    "program", [dicts, parameters, slots, attributes, states, in_branches, at_the_top, ended_by_data, nested]
)
def test_objects_are_state(program) -> None:
    for _ in range(2):
        traced = agree(program, RNG.random(40), unrolled=program not in (in_branches, at_the_top, ended_by_data))
        assert program is at_the_top or loops(traced)[0].split()[0] in ("scan", "while")


def new_keys(x):
    s = {}
    for i in range(20):
        s["last"] = x[i] if i < 1 else s["last"] * 0.5 + x[i]
    return s["last"]


def test_keys_that_the_first_iteration_adds_are_there_for_the_others() -> None:
    assert loops(agree(new_keys, RNG.random(20))) == ["scan 19"]


def keys_of_the_counter(x):
    s, t = {}, 0.0
    for i in range(20):
        s[i] = x[i]
        t = t + len(s)
    return s[3], t


def shorter(x):
    s, t = [x[0], x[1], x[2]], 0.0
    for i in range(20):
        if i == 5:
            del s[0]
        t = t + s[0] * x[i]
    return t


class Counted:
    def __init__(self) -> None:
        self.hits = 0.0

    @property
    def value(self):
        return self.hits

    @value.setter
    def value(self, new):
        self.hits = new + 1.0


def property_set(x):
    box = Counted()
    for i in range(20):
        box.value = x[i] + box.value
    return box.value


@pytest.mark.parametrize("program", [keys_of_the_counter, shorter, property_set])
def test_what_only_python_can_do_is_unrolled(program) -> None:
    assert loops(agree(program, RNG.random(20))) == []


# comprehensions and generators


def comprehensions(x):
    smooth = np.array([x[i : i + 3].mean() for i in range(30)])
    squares = [v * v for v in x]
    pairs = np.array([[a * k, b] for k, (a, b) in enumerate(zip(x, smooth, strict=False))])
    return smooth, np.array(squares), pairs, np.array([i**2 + x[0] for i in range(20) if i % 2])


def generators(x):
    n = len(x)
    total = sum(x[i] * x[-1 - i] for i in range(n))
    largest, least = max(abs(v - 0.5) for v in x), min(x[i] + i for i in range(n))
    most = sum(v for v in x if v > 0.5)
    return total, largest, least, any(v > 0.99 for v in x), all(v < 2.0 for v in x), most, sum(list(2 * v for v in x))  # noqa: C400


def test_comprehensions_and_generators_are_loops() -> None:
    for program in (comprehensions, generators):
        traced = agree(program, RNG.random(40), unrolled=program is comprehensions)
        assert len(loops(traced)) >= 3


def inside_of_loops(x):
    u = x[:20] * 1
    for i in range(20):
        parts = [u * k + x[i] for k in range(3)]
        sums = [v * x[i] for v in u]
        u = u * 0.5 + sum(p * 0.1 for p in parts) + np.array(sums) + max(v for v in x)
    return u


def test_comprehensions_stand_in_loops() -> None:
    assert loops(agree(inside_of_loops, RNG.random(40), unrolled=False))[0] == "scan 20"


def test_python_decides_what_it_can() -> None:
    def few(x):
        table = {k: v + "!" for k, v in enumerate("abc")}
        return sum(x[k] for k in table), [c for c in "xyz" if c != "y"] == ["x", "z"], max((3, 1)), sum(iter([1, 2]))

    assert loops(agree(few, RNG.random(4))) == []


# conditions as values, definitions, `try` and `with`


def values_of_conditions(a):
    n, last = 0, False
    for i in range(20):
        inside = 0.2 < a[i] < 0.8
        both = inside and not a[i] * 2 > 1.2
        if both and not last:
            n += 1
        last = both or (0.9 <= a[i] + 0.01 != 3)
    return n, last, (a[0] > 2 or a[1]), (a[0] > -1 and a[2])


def definitions(a):
    out = np.zeros(20)
    for i in range(20):

        def g(v):
            return v * a[i] + a[-1 - i]  # noqa: B023

        h = lambda v: 2 * g(v) + i  # noqa: E731, B023
        out[i] = h(a[i]) - g(1.0)
    return out


def guarded(a):
    s, n = 0.0, 0
    with np.errstate(divide="ignore"):
        for i in range(20):
            try:
                s = s * 0.9 + 1 / a[i]
            finally:
                n += 1
            with np.errstate(invalid="ignore"):
                s = math.sqrt(s)
    return s, n


@pytest.mark.parametrize("program", [values_of_conditions, definitions, guarded])
def test_statements_in_bodies(program) -> None:
    traced = agree(program, RNG.random(20), unrolled=program is definitions)
    assert loops(traced) == ["scan 20"] or loops(traced) == ["scan 19"]


# arrays that are one of two


def decayed(x):
    acc, other = np.zeros(4), x[:4] * 1
    for i in range(20):
        if x[i] < 0.3:
            acc = acc * 0.5
        acc += x[i : i + 4]
        chosen = other if x[i] > 0.5 else other * 2
        acc = acc + chosen
    y = x[:3] * 1
    if x[0] > 0.5:
        y = y * 2
    y += 1
    return acc, y


def written_first(x):
    acc, v = np.zeros(4), x[:4] * 1
    for i in range(20):
        acc += x[i : i + 4]
        if acc[0] > 3:
            acc = acc * 0.5
        v[i % 4] = x[i]
        v = v * 0.9 + acc
    return acc, v


def test_what_nobody_else_sees_may_be_one_of_two_arrays() -> None:
    for _ in range(2):
        agree(decayed, RNG.random(40), unrolled=False)
        assert loops(agree(written_first, RNG.random(40), unrolled=False))[0].startswith("scan")


def held_elsewhere(x):
    acc = np.zeros(4)
    first = acc
    for i in range(20):
        if x[i] < 0.3:
            acc = acc * 0.5
        acc += x[i : i + 4]
    return acc, first


def handed_on(x):
    acc, s = np.zeros(4), 0.0
    for i in range(20):
        before = acc
        if x[i] < 0.3:
            acc = acc * 0.5
        acc += x[i : i + 4]
        s = s + before[0]
    return acc, s


def appended(x):
    acc, rows = np.zeros(4), []
    for i in range(20):
        if x[i] < 0.3:
            acc = acc * 0.5
        acc += x[i : i + 4]
        rows.append(acc)
    return np.array(rows)


def outside_of_the_loop(x):
    z, s = x[:4] * 1, 0.0
    for i in range(20):
        y = z if x[i] < 0.5 else z * 2
        y += 1
        s = s + z[0]
    return s


def the_argument(x):
    if x[0] > 0.5:
        x = x * 2
    x += 1
    return x


def written_first_and_seen(x):
    acc = np.zeros(4)
    first = acc
    for i in range(20):
        acc += x[i : i + 4]
        acc = acc * 0.5
    return acc, first


def written_first_and_kept(x):
    acc, rows = np.zeros(4), []
    for i in range(20):
        acc += x[i : i + 4]
        rows.append(acc)
        acc = acc * 0.5
        rows.append(acc)
    return np.array(rows)


def two_that_change(x):
    a = b = np.zeros(4)
    for i in range(20):
        a += x[i]
        a = a * 0.5 + b
    return a, b


@pytest.mark.parametrize("program", [written_first_and_seen, written_first_and_kept, two_that_change])
def test_arrays_that_are_written_and_seen_are_numpys(program) -> None:
    agree(program, RNG.random(40))


@pytest.mark.parametrize("program", [held_elsewhere, handed_on, appended, outside_of_the_loop, the_argument])
def test_what_somebody_else_sees_may_not(program) -> None:
    with pytest.raises(TraceError, match=r"as a condition|as data decide"):
        trace(program, RNG.random(40))


# ---- functions that elements make see the variable as it is at the end -----------------------------------------------


def functions(x):
    made = [lambda v: v * i for i in range(20)]  # noqa: B023 - what is tested
    return made[0](x[:3]) + sum(f(x[:3]) for f in made)


def functions_of_a_generator(x):
    made = tuple(lambda v: v * i for i in range(20))  # noqa: B023 - what is tested
    return made[3](x[:3])


def generators_kept(x):
    made = [(v * i for v in (x[0], x[1])) for i in range(20)]
    return sum(sum(each) for each in made)


def bound_by_defaults(x):
    made = [lambda v, i=i: v * i for i in range(20)]
    return sum(f(x[:3]) for f in made)


def used_up_at_once(x):
    return [sum(x[j] * i for j in range(18)) for i in range(20)]


MAKERS = [functions, functions_of_a_generator, generators_kept, bound_by_defaults, used_up_at_once]


@pytest.mark.parametrize("function", MAKERS, ids=lambda function: function.__name__)
def test_functions_that_a_comprehension_makes_see_its_variable_as_pythons_do(function) -> None:
    x = RNG.random(30)
    traced = trace(function, x)
    found = traced.unflatten(interpret(traced.graph, x))
    np.testing.assert_allclose(found, function(x), rtol=1e-12)
