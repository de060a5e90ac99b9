"""`barograph backup` beside a running collector, and `barograph restore` after its disk was lost."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Memory
from barograph_agent.protocol import wire
from helpers.log import Producer, blocks, wait_until
from helpers.service import Service

pytestmark = [pytest.mark.process]


def barograph(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barograph", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_backup_of_a_running_collector_brings_its_log_back(tmp_path: Path) -> None:
    backup, state = tmp_path / "backups/1", tmp_path / "state"
    with Service(tmp_path) as service, Producer(service.endpoint) as producer:
        producer.hello()
        for seq in range(1, 51):
            producer.append(seq, "blocks", 100, blocks(100, 100 * seq))
        producer.receive_ack(50)
        made = barograph("backup", backup, "--state", state)
        assert (made.stdout, made.stderr) == (f"{backup}: 5,000 rows, up to offset 5,000\n", "")
        again = barograph("backup", backup, "--state", state)
        refusal = f"barograph backup: {backup}: exists, expected a new directory\n"
        assert (again.returncode, again.stderr) == (65, refusal)
        held = barograph("restore", backup, "--state", state, "--replace")
        assert held.returncode == 65
        assert "another process has it open" in held.stderr
        service.kill()
        shutil.rmtree(state)
        done = barograph("restore", backup, "--state", state)
        assert done.stdout.startswith(f"{state}: 5,000 rows, up to offset 5,000, of 20"), done.stderr
        service.start()
        assert [row["first_index"] for row in service.rows("blocks")] == list(range(100, 5100))


def test_a_stopped_collector_moves_to_another_host_while_a_job_runs_and_nothing_is_lost(tmp_path: Path) -> None:
    outbox = Memory()
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    old, new = Service(tmp_path / "old"), Service(tmp_path / "new")
    new.endpoint = old.endpoint
    link = Link(old.endpoint, "job/node", outbox)

    def work(numbers: range, until: Callable[[], object]) -> None:
        for seq in numbers:
            message = wire.append("job/node", outbox.next_seq, "blocks", 100, blocks(100, 100 * seq))
            outbox.put(100, wire.encode(message))
        wait_until(lambda: link.pump(0.01) or until(), "messages were sent")

    with old:
        work(range(50), lambda: link.idle)
        work(range(50, 200), lambda: outbox.first_seq > 60)
        old.process.send_signal(signal.SIGTERM)
        wait_until(lambda: link.pump(0.01) or old.process.poll() is not None, "the collector has stopped")
    assert old.process.returncode == 0
    made = barograph("backup", tmp_path / "copy", "--state", tmp_path / "old/state")
    assert made.returncode == 0, made.stderr
    done = barograph("restore", tmp_path / "copy", "--state", tmp_path / "new/state")
    assert done.returncode == 0, done.stderr
    with new:
        work(range(200, 250), lambda: link.idle)
        found = [row["first_index"] for row in new.rows("blocks")]
        lost = [row for row in new.rows("events") if row["kind"] == "forgotten"]
    link.close()
    assert found == list(range(25_000))
    assert lost == []
