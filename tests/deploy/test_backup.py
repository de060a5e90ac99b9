"""`barograph backup` beside a running collector, and `barograph restore` after its disk was lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.log import Producer, blocks
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
