"""Work done beside the caller, on a few threads that live no longer than it.

The standard library's executors do more. Importing them, with the logging that they bring, takes 5 to 14 ms of a first
call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from autofuse.errors import BackendError

T = TypeVar("T")


class _Task(Generic[T]):
    """A call, and what became of it."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Event()
        self._found: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        """Call; an error is for who waits."""
        try:
            self._found.append(self._call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self._error = error
        self._done.set()

    def drop(self) -> None:
        """Who waits for it hears that it was not begun."""
        self._error = BackendError("work beside the caller was given up before it began")
        self._done.set()

    def result(self) -> T:
        """Wait for it. Raises what the call raised."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._found[0]


class Beside:
    """Runs calls on other threads, in the order in which they are begun. A context manager: nothing runs behind it.

    Begin calls from one thread. Leaving drops those that no thread has begun, and waits for the others.
    """

    def __init__(self, most: int, name: str) -> None:
        """`most`: threads at a time. `name`: of them, with a number."""
        self._most, self._name = most, name
        self._lock = threading.Lock()
        self._waiting: deque[_Task[object]] = deque()
        self._running = 0
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            dropped = list(self._waiting)
            self._waiting.clear()
        for task in dropped:
            task.drop()
        for thread in self._threads:
            thread.join()

    def begin(self, call: Callable[[], T]) -> Callable[[], T]:
        """Have a call made; returns what waits for its result, and raises what it raised."""
        task = _Task(call)
        with self._lock:
            self._waiting.append(task)  # pyright: ignore[reportArgumentType]  # nothing looks at its result here
            grows = self._running < self._most
            self._running += grows
        if grows:
            thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self._threads)}")
            try:
                thread.start()
            except RuntimeError:  # the system gives no more threads: the others do it, or the caller
                with self._lock:
                    alone = self._running == 1
                    self._running -= not alone
                if alone:
                    self._work()
            else:
                self._threads.append(thread)
        return task.result

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                task = self._waiting.popleft()
            task.run()
