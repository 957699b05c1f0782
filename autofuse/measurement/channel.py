"""Messages between the tuner and its worker: length-prefixed JSON and raw arrays. Nothing is pickled."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import MeasureError, ParseError
from autofuse.ir.types import TensorType, of_array, parse_type
from autofuse.lazydataclass import dataclass, field
from autofuse.strictjson import Item, parse

_HEADER = struct.Struct("<8sQ")
_MAGIC = b"autofuse"
_MAX_JSON = 1 << 30
_MAX_ARRAYS = 100_000
_MAX_ARRAY_BYTES = 1 << 40


class ChannelClosedError(MeasureError):
    """The other side is gone."""


class DeadlineError(MeasureError):
    """Nothing came, or could be handed over, in time."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message: JSON data with a `type`, and arrays by name."""

    type: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])


class Channel:
    """One end of a connection. Not safe for use by two threads at once."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def close(self) -> None:
        """Close this end; the other end then sees ChannelClosedError."""
        self._socket.close()

    def send(self, message: Message, deadline: float | None = None) -> None:
        """Hand a message over by `deadline` (on `time.monotonic`'s clock; None = wait).

        Raises ChannelClosedError, DeadlineError, or MeasureError for data that is not JSON.
        """
        for piece in pieces_of(message):
            self._send(piece, deadline)

    def receive(self, deadline: float | None = None) -> Message:
        """The next message. Raises ChannelClosedError, DeadlineError, or MeasureError for one that is malformed."""
        return message_from(lambda length: self._receive(length, deadline))

    def _send(self, data: bytes | memoryview, deadline: float | None) -> None:
        try:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(data)
        except TimeoutError:
            raise DeadlineError("the deadline passed while sending") from None
        except OSError as failure:
            raise ChannelClosedError(f"the other side is gone ({failure.strerror or failure})") from None

    def _receive(self, length: int, deadline: float | None) -> bytearray:
        buffer = bytearray(length)
        view = memoryview(buffer)
        filled = 0
        while filled < length:
            try:
                self._socket.settimeout(_left(deadline))
                count = self._socket.recv_into(view[filled:])
            except TimeoutError:
                raise DeadlineError("the deadline passed while waiting for an answer") from None
            except OSError as failure:
                raise ChannelClosedError(f"the other side is gone ({failure.strerror or failure})") from None
            if count == 0:
                raise ChannelClosedError("the other side closed the connection")
            filled += count
        return buffer


def pieces_of(message: Message) -> Iterator[bytes | memoryview]:
    """A message as bytes, in pieces. Raises MeasureError, before the first one, for data that is not JSON."""
    types = {name: str(of_array(array)) for name, array in message.arrays.items()}
    try:
        text = json.dumps({"type": message.type, "data": message.data, "arrays": types}, allow_nan=False).encode()
    except (TypeError, ValueError) as bad:
        raise MeasureError(f"a {message.type} message holds what JSON cannot: {bad}") from bad
    yield _HEADER.pack(_MAGIC, len(text)) + text
    for array in message.arrays.values():
        if array.size:
            yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def message_from(read: Callable[[int], bytes | bytearray | memoryview]) -> Message:
    """The message that so many bytes at a time are read of. Raises MeasureError for one that is malformed."""
    magic, length = _HEADER.unpack(read(_HEADER.size))
    if magic != _MAGIC or length > _MAX_JSON:
        raise MeasureError("the worker's connection carries something else than messages")
    keys = parse(bytes(read(length)), MeasureError, "message").fields(("type", "data", "arrays"))
    data = keys["data"]
    data.members(at_most=_MAX_ARRAYS)
    arrays: dict[str, NDArray[Any]] = {}
    for name, item in keys["arrays"].members(_MAX_ARRAYS).items():
        type_ = _type_of(item)
        arrays[name] = np.frombuffer(read(type_.nbytes), type_.dtype.numpy).reshape(type_.shape)
    return Message(keys["type"].text(), dict(data.value) if isinstance(data.value, dict) else {}, arrays)


def _type_of(item: Item) -> TensorType:
    try:
        type_ = parse_type(item.text(1000))
    except ParseError as bad:
        item.fail(str(bad))
    if type_.nbytes > _MAX_ARRAY_BYTES:
        item.fail(f"{type_} is too large")
    return type_


def _left(deadline: float | None) -> float | None:
    """Seconds until the deadline; never 0, which would mean not to wait at all."""
    return None if deadline is None else max(1e-3, deadline - time.monotonic())
