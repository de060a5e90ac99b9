"""The commands of the tutorial, typed in its order: an alarm is in the terminal, on the page and in the metrics."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from helpers import belongings
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.mpi import OPENMPI_ENVIRONMENT
from helpers.quiet import repeated_if_disturbed
from helpers.up import Up

PAGE = Path(__file__).resolve().parents[2] / "docs/user/tutorial.md"
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S) for line in block.splitlines()
]
ALARM = 'barograph_alerts_jobs_total{state="slow"}'


def test_the_tutorial_has_ten_lines_at_most() -> None:
    assert len(COMMANDS) <= 10


@pytest.mark.process
@pytest.mark.alone
@pytest.mark.timeout(900)
def test_the_alarm_of_the_tutorial_is_in_terminal_page_and_metrics(tmp_path: Path) -> None:
    belongings.tutorial(tmp_path)
    with Up(tmp_path) as service:
        ports = {str(7450 + above): str(service.port + above) for above in range(5)}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BAROGRAPH_")}
        environment |= OPENMPI_ENVIRONMENT | {
            "BAROGRAPH_COLLECTOR": f"tcp://127.0.0.1:{service.port}",
            "BAROGRAPH_SPOOL": str(tmp_path / "spool"),
            "BAROGRAPH_RINGS": str(tmp_path / "rings"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

        def typed(line: str) -> str:
            line = re.sub(r"\b745[0-4]\b", lambda port: ports[port[0]], line)
            done = subprocess.run(
                line,
                shell=True,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            return done.stdout + done.stderr

        @repeated_if_disturbed
        def typed_until_the_alarm() -> tuple[list[str], re.Match[str]]:
            said = [typed(line) for line in COMMANDS[1:]]
            job = re.search(r"verdict   slow: .*\n(?:barograph: note.*\n)*barograph: job       (\S+), (\S+)", said[3])
            assert job, said[3]
            return said, job

        assert COMMANDS[0] == "barograph up"
        said, job = typed_until_the_alarm()
        assert all(job[1] in text and "slow" in text for text in said[4:6])
        assert float(re.search(rf"^{re.escape(ALARM)} (\S+)$", said[6], re.M)[1]) >= 1  # type: ignore[index]
        with urllib.request.urlopen(job[2], timeout=DEADLINE_SECONDS) as answer:
            assert "What now?" in answer.read().decode()
        wait_until(lambda: ALARM in service.metrics("alerts"), "the metric is there")
