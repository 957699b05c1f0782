"""What the worker tells the tuner about how long to wait."""

from autofuse.measurement.worker import Wait


def test_a_later_end_is_told_and_an_earlier_one_only_where_it_is_meant():
    told, now = [], [100.0]
    wait = Wait(told.append, lambda: now[0])
    wait.at_least(5.0)
    wait.at_least(3.0)
    now[0] += 4.0
    wait.at_least(1.0)
    assert told == [5.0]
    wait.at_least(2.0)
    wait.up_to(1.0)
    wait.at_least(1.5)
    assert told == [5.0, 2.0, 1.0, 1.5]
