"""Makes plans of one checkout and times them when asked: a JSON line in, a JSON line out."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import autofuse as af

Array = NDArray[Any]
MOMENTS = 3
"""A sample is the fastest of so many moments."""
DTYPES: Mapping[str, Any] = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "product": np.matmul,
    "transposed product": lambda a, b: np.matmul(a, np.swapaxes(b, -1, -2)),
    "dot of rows": lambda a, b: (a * b).sum(-1),
    "sum of all": lambda a: a.sum(),
    "row sums": lambda a: a.sum(-1),
    "column sums": lambda a: a.sum(0),
    "row means": lambda a: a.mean(-1),
    "row variances": lambda a: a.var(-1),
    "variance of all": lambda a: a.var(),
    "running sums": lambda a: np.cumsum(a, -1),
}


class Subject:
    """One function on one set of arguments, planned."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        """`task`: function, shapes, dtype, threads, seed, shift (what is added to normal numbers)."""
        rng = np.random.default_rng(task["seed"])
        made = [rng.standard_normal(shape) + task["shift"] for shape in task["shapes"]]
        self.arguments = [array.astype(DTYPES[task["dtype"]]) for array in made]
        self.function = FUNCTIONS[task["function"]]
        policy = "unfused" if "product" in task["function"] else "analytical"
        self.plan = af.compile(self.function, *self.arguments, policy=policy, threads=task["threads"])
        self.out = np.array(self.plan(*self.arguments))

    def errors(self) -> dict[str, float]:
        """Root mean square errors against f64 (long double for f64), here and in NumPy."""
        wide = np.longdouble if self.arguments[0].dtype == np.float64 else np.float64
        exact = self.function(*(array.astype(wide) for array in self.arguments))

        def error(found: Any) -> float:
            return float(np.sqrt(np.mean(np.square(np.asarray(found).astype(wide) - exact))))

        return {"error": error(self.out), "numpy_error": error(self.function(*self.arguments))}

    def seconds(self, repeats: int) -> float:
        """Of one call."""
        self.plan(*self.arguments, out=self.out)
        best = float("inf")
        for _ in range(MOMENTS):
            start = time.perf_counter()
            for _ in range(repeats):
                self.plan(*self.arguments, out=self.out)
            best = min(best, (time.perf_counter() - start) / repeats)
        return best


def serve() -> None:
    """Answer until the input ends."""
    subject: Subject | None = None
    for line in sys.stdin:
        task = json.loads(line)
        if "function" in task:
            subject = Subject(task)
            answer: dict[str, Any] = subject.errors() if task["exact"] else {}
        else:
            assert subject is not None
            answer = {"seconds": subject.seconds(task["repeats"])}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
