import json
import socket
import struct
import threading
import time

import numpy as np
import pytest

from autofuse.errors import GraphError, MeasureError
from autofuse.measurement.channel import Channel, ChannelClosedError, DeadlineError, Message


@pytest.fixture
def ends():
    a, b = socket.socketpair()
    with a, b:
        yield a, b


def test_message_larger_than_the_pipe_goes_through(ends):
    here, there = map(Channel, ends)
    array = np.arange(3_000_000, dtype=np.float64)
    sender = threading.Thread(target=here.send, args=(Message("job", {"n": 1}, {"x": array}),))
    sender.start()
    message = there.receive()
    sender.join()
    assert message.type == "job"
    assert message.data == {"n": 1}
    np.testing.assert_array_equal(message.arrays["x"], array)


def test_received_arrays_can_be_written(ends):
    here, there = map(Channel, ends)
    here.send(Message("job", {}, {"x": np.zeros(3)}))
    there.receive().arrays["x"][0] = 1.0


def test_deadlines_hold_for_both_directions(ends):
    here, _ = map(Channel, ends)
    with pytest.raises(DeadlineError, match="waiting for an answer"):
        here.receive(time.monotonic() + 0.01)
    with pytest.raises(DeadlineError, match="sending"):
        here.send(Message("job", {}, {"x": np.zeros(10_000_000)}), time.monotonic() + 0.01)


def test_the_other_sides_end_is_noticed(ends):
    here, there = map(Channel, ends)
    there.close()
    with pytest.raises(ChannelClosedError):
        here.receive()
    with pytest.raises(ChannelClosedError):
        here.send(Message("job", {}, {"x": np.zeros(100_000)}))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"GET / HTTP/1.1\r\n", "something else than messages"),
        (struct.pack("<8sQ", b"autofuse", 1 << 50), "something else than messages"),
        (struct.pack("<8sQ", b"autofuse", 2) + b"{]", "not JSON"),
        (struct.pack("<8sQ", b"autofuse", 2) + b"{}", "'type' is missing"),
    ],
)
def test_malformed_messages_are_refused(ends, raw, message):
    ends[0].sendall(raw)
    with pytest.raises(MeasureError, match=message):
        Channel(ends[1]).receive()


@pytest.mark.parametrize("spec", ["f64[1000000,1000000,1000000]", "f64[1000000,1000000]", "f64[nothing]"])
def test_types_that_no_message_has_are_refused_before_memory_is_taken(ends, spec):
    text = json.dumps({"type": "job", "data": {}, "arrays": {"x": spec}}).encode()
    ends[0].sendall(struct.pack("<8sQ", b"autofuse", len(text)) + text)
    with pytest.raises(MeasureError, match="message: arrays"):
        Channel(ends[1]).receive()


def test_what_no_message_can_hold_is_refused_before_sending(ends):
    here, there = map(Channel, ends)
    with pytest.raises(MeasureError, match="JSON cannot"):
        here.send(Message("job", {"x": {1}}))
    with pytest.raises(GraphError, match="complex256"):
        here.send(Message("job", {}, {"x": np.zeros(2, np.clongdouble)}))
    here.send(Message("next"))
    assert there.receive().type == "next"
