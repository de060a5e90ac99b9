"""A daemon follows a log, whatever becomes of its collector."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import zmq

from barograph_collector.client.log_reader import LogUnavailable, ReadRefused, Round
from barograph_collector.daemon.service import CannotStart, Exit
from barograph_collector.daemon.source import LogSource

A = "tcp://a:1"


class FakeLog:
    """A collector with some rows of `blocks`, or one that does not answer."""

    endpoint = A

    def __init__(self, *rounds: list[str]) -> None:
        self.name = "log"
        self.rounds = list(rounds)
        self.error: Exception | None = None
        self.offset = 0
        self.asked = 0
        self.over = 0
        """Reads whose time ends without a row."""
        self.waiting = False
        self.connections = 1

    def identity(self) -> str:
        self.asked += 1
        return self.name

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round | None:
        assert seconds > 0, "a read that does not wait blocks where there is no answer"
        if self.error is not None:
            raise self.error
        if max(offsets.values()) > self.offset:
            return max(offsets.values()), {}  # it was asked whether it answers
        if self.over:
            self.over -= 1
            return self.offset, {}
        if not self.rounds:
            self.waiting = True
            return None
        jobs = self.rounds.pop(0)
        first, self.offset = self.offset + 1, self.offset + len(jobs)
        return self.offset, {"blocks": {"job": jobs, "log_offset": np.arange(first, self.offset + 1)}}

    def register(self, poller: zmq.Poller) -> None:
        pass


class Prepared:
    """A source, and how often the daemon was prepared for it."""

    def __init__(self, log: FakeLog) -> None:
        self.calls = 0
        self.source = LogSource(log, ["paces", "blocks"])  # type: ignore[arg-type]

    def step(self) -> list[list[str]]:
        """One cycle; the jobs of each round."""
        self.source.prepare(lambda source: self.__dict__.update(calls=self.calls + 1))
        if not self.source.is_ready:
            return []
        return [list(columns["job"]) for round_ in self.source.poll() for _, columns in round_]


def test_a_refusal_of_what_a_daemon_reads_at_its_start_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    prepared = Prepared(FakeLog(["a1"]))

    def refused(source: LogSource) -> None:
        raise ReadRefused("role is agent, expected one that may read")

    prepared.source.prepare(refused)
    assert (prepared.source.is_ready, prepared.source.delivered) == (False, {})
    assert caplog.messages == ["role is agent, expected one that may read; retrying"]
    assert prepared.step() == [["a1"]]
    assert (prepared.calls, prepared.source.trouble) == (1, "")


def test_a_read_whose_time_is_over_is_followed_by_another_one_at_once() -> None:
    log = FakeLog(["a1"])
    prepared = Prepared(log)
    assert prepared.step() == [["a1"]]
    for _ in range(3):
        log.over, log.waiting = 1, False
        assert prepared.step() == []
        assert log.waiting, "nothing would wake the daemon when a row comes"
    log.rounds = [["a2"]]
    assert prepared.step() == [["a2"]]


def test_a_collector_that_goes_away_while_it_is_prepared_for_is_asked_again() -> None:
    prepared = Prepared(FakeLog(["a1"]))

    def fails(source: LogSource) -> None:
        raise LogUnavailable("away")

    with pytest.raises(LogUnavailable):
        prepared.source.prepare(fails)
    assert prepared.source.delivered == {}
    assert prepared.step() == [["a1"]]


@pytest.mark.parametrize("is_missed", [True, False])
def test_a_collector_that_comes_back_with_its_log_is_read_on_and_with_another_one_ends_the_daemon(
    is_missed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it was missed, or was away for so short that only its connection is another one."""
    log = FakeLog(["a1", "a2"])
    prepared = Prepared(log)
    assert prepared.step() == [["a1", "a2"]]

    def goes() -> None:
        log.connections += not is_missed
        log.error = LogUnavailable("no answer") if is_missed else None
        for _ in range(2):
            with pytest.raises(LogUnavailable, match="no answer" if is_missed else "was started again"):
                list(prepared.source.poll())

    with caplog.at_level("INFO"):
        goes()
        log.error, log.rounds = None, [["a3"]]
        assert prepared.step() == [["a3"]]
    assert caplog.messages == ["no answer; retrying", f"the collector at {A} is back"] * is_missed
    assert (prepared.calls, log.asked, prepared.source.delivered) == (1, 2, {"paces": 0, "blocks": 3})
    goes()
    log.error, log.name = None, "new"
    with pytest.raises(CannotStart, match=f"the collector at {A} has another log than before") as error:
        prepared.step()
    assert error.value.status == Exit.FAILED, "so that it is started again"
