"""Append-to-acknowledgement latency of honest producers during an attack on their collector.

Compared in the same run with the latency without an attack and with that during the same attack on another collector on
this machine. The ratio to the latter is asserted: attackers and collectors share the processors here, so any attack
takes some of their time, which an attack from another host would not.
"""

from __future__ import annotations

import multiprocessing
import re
import resource
import signal
import statistics
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest

from barograph_agent.deliver import credential
from barograph_agent.deliver import keys as client_keys
from barograph_agent.protocol import wire
from barograph_collector.auth import keys
from barograph_collector.storage import messages
from barograph_lab.bench.load import Load
from barograph_lab.bench.measured_collector import MeasuredCollector
from helpers.attackers import ATTACKS, ATTACKS_WITH_A_KEY, Access
from helpers.hostile_wire import mutations

SECONDS = 3.0
ROUNDS = 5
"""Rounds per figure, which is their median: a single disk flush of a quarter of a second would dominate a p99."""
STREAMS = 50
RECORDS_PER_SECOND = 5_000.0
RATIO_LIMIT = 3.0
STREAM = "hostile"
MUTATIONS = 1_000_000


def _attack(name: str, endpoint: str, access: Access | None, started: Event) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    over: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: over.append(number))

    def stopped() -> bool:
        started.set()
        return bool(over)

    if access is None:
        ATTACKS[name](endpoint, stopped)
    else:
        ATTACKS_WITH_A_KEY[name](endpoint, stopped, access)


@contextmanager
def attacked(name: str, endpoint: str, access: Access | None) -> Iterator[None]:
    processes = multiprocessing.get_context("spawn")
    started = processes.Event()
    attacker = processes.Process(target=_attack, args=(name, endpoint, access, started))
    attacker.start()
    assert started.wait(60.0), f"{name} did not start"
    try:
        yield
    finally:
        attacker.terminate()
        attacker.join()


@dataclass
class Site:
    """A collector to be attacked; with a key directory it authenticates clients."""

    collector: MeasuredCollector
    keys: Path | None

    @classmethod
    @contextmanager
    def opened(cls, state: Path, *, with_keys: bool) -> Iterator[Site]:
        state.mkdir()
        if not with_keys:
            with MeasuredCollector(state) as collector:
                yield cls(collector, None)
            return
        keys.init(state / "keys")
        for name in ("honest", "hostile"):
            keys.add(state / "keys", "agent", name)
        with MeasuredCollector(state, "--keys", str(state / "keys")) as collector:
            yield cls(collector, state / "keys")

    def access(self, name: str, job: str) -> Access | None:
        if self.keys is None:
            return None
        secret = bytes.fromhex(keys.load_collector(self.keys).token_secret)
        token = credential.issue(secret, job, name, int(time.time()) + 3600)
        return Access(client_keys.load(self.keys / f"{name}.key"), token)

    @contextmanager
    def attacked(self, name: str) -> Iterator[None]:
        with attacked(name, self.collector.endpoint, self.access("hostile", "lab/666")):
            yield

    def p99(self, job: str) -> float:
        """99th percentile of the seconds from append to acknowledgement of honest messages, at a steady pace."""
        honest = self.access("honest", job)
        allowed = {"key": honest.key, "credential": honest.proof} if honest else {}
        load = Load(self.collector.endpoint, STREAMS, 10, job, **allowed)
        try:
            assert load.open(60.0)
            report = load.pace(SECONDS, RECORDS_PER_SECOND)
        finally:
            load.close()
        return float(np.quantile(report.waits, 0.99))

    def refused(self) -> dict[str, int]:
        """Number of rejected messages by reason."""
        with urllib.request.urlopen(self.collector.metrics_url) as answer:
            found = re.findall(r'collector_rejected_total{reason="(\S+)"} (\S+)', answer.read().decode())
        return {reason: int(float(count)) for reason, count in found if float(count)}


@pytest.mark.timeout(1200)
def test_honest_producers_under_attack(tmp_path: Path) -> None:
    print(f"\n\n{RECORDS_PER_SECOND:,.0f} records/s from {STREAMS} honest streams, p99 from append to ack in ms\n")
    heads = f"{'attack':<24}{'no attack':>10}{'neighbour attacked':>20}"
    print(f"{heads}{'attacked':>10}{'x without':>10}{'x neighbour':>13}")
    ratios: dict[str, float] = {}
    for number, name in enumerate([*ATTACKS, *ATTACKS_WITH_A_KEY]):
        with_keys = name in ATTACKS_WITH_A_KEY
        with (
            Site.opened(tmp_path / f"{number}-here", with_keys=with_keys) as here,
            Site.opened(tmp_path / f"{number}-there", with_keys=with_keys) as there,
        ):
            here.p99("lab/0")
            rounds: list[tuple[float, float, float]] = []
            for turn in range(ROUNDS):
                quiet = here.p99(f"lab/{turn}1")
                with there.attacked(name):
                    neighbour = here.p99(f"lab/{turn}2")
                with here.attacked(name):
                    rounds.append((quiet, neighbour, here.p99(f"lab/{turn}3")))
            calm, beside, under = (statistics.median(figures) for figures in zip(*rounds, strict=True))
            peak, refused = here.collector.usage().peak_bytes, here.refused()
        ratios[name] = under / beside
        print(
            f"{name:<24}{1000 * calm:10.0f}{1000 * beside:20.0f}{1000 * under:10.0f}{under / calm:10.1f}"
            f"{under / beside:13.1f}   (collector at most {peak / 2**20:,.0f} MiB;"
            f" {', '.join(f'{count:,} {reason}' for reason, count in refused.items())})"
        )
        assert refused, f"nothing of {name} was refused"
    assert max(ratios.values()) <= RATIO_LIMIT, ratios


@pytest.mark.timeout(1200)
def test_a_million_mutated_messages() -> None:
    began, undecodable, refused = time.process_time(), 0, 0
    for frame in mutations(seed=3, count=MUTATIONS, stream=STREAM):
        try:
            message = messages.decode([frame])
        except messages.Undecodable:
            undecodable += 1
            continue
        if isinstance(message, wire.Append) and message.stream == STREAM:  # other streams were never opened
            refused += messages.appended(message, frame, 0.0).refusal is not None
    seconds = time.process_time() - began
    print(f"\n\n{MUTATIONS:,} mutated messages: {undecodable:,} undecodable, {refused:,} appends refused,")
    print(f"{1e6 * seconds / MUTATIONS:.1f} us of CPU time each, including their generation")
