"""The store on the next version of DuckDB, which lies beside the environment and comes first on the path.

Queries are not: it writes their trees otherwise, and such a query is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NEXT = "2.0.0"
HERE = Path(__file__).parent


@pytest.mark.integration
@pytest.mark.timeout(1800)
def test_the_store_does_the_same_on_the_next_duckdb(tmp_path: Path) -> None:
    beside = tmp_path / "duckdb"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(beside), f"duckdb=={NEXT}"]
    if (installed := subprocess.run(install, capture_output=True, text=True, check=False)).returncode:
        reason = f"DuckDB {NEXT} cannot be installed: {installed.stderr.strip()[-300:]}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    environment = {**os.environ, "PYTHONPATH": str(beside)}
    version = [sys.executable, "-c", "import duckdb; print(duckdb.__version__)"]
    assert subprocess.check_output(version, env=environment, text=True).strip() == NEXT
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "test_store.py")],
        env=environment,
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]
