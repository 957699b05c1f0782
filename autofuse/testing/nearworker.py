"""A measuring worker that is a thread of this process: for targets whose times the process has no part in."""

from __future__ import annotations

import socket
from threading import Thread

from autofuse.measurement.channel import Channel
from autofuse.measurement.worker import serve
from autofuse.measurement.workerpool import Worker


class NearWorker(Worker):
    """Starts at once. What crashes or hangs there takes the process with it."""

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        Thread(target=_serve, args=(theirs,), daemon=True).start()
        self._channel = Channel(ours)
        self._channel.receive()

    def _kill(self) -> None:
        self.restarts += self._channel is not None
        super()._kill()


def _serve(connection: socket.socket) -> None:
    channel = Channel(connection)
    try:
        serve(channel)
    finally:
        channel.close()
