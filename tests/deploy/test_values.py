"""What a hostile agent may write is shown by pages, status, report and exports: none of them fails for it."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from barograph.cli import CommandError
from barograph.cli import main as barograph
from barograph.site.app import create
from barograph.views.collectors.log_views import LogViews
from barograph.views.modeler import ModelerClient
from barograph_collector.server import Collector
from barograph_collector.storage.store import Store
from simulation.values import NOW, serve

AWAY = "http://127.0.0.1:1"
SHOWN = ("/", "/?state=unknown", "/?user=amara", "/search?q=lab", "/alarms", "/applications", "/pipeline", "/slow")


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_whatever_an_agent_writes_is_shown(seed: int, tmp_path: Path) -> None:
    rows = serve(seed).log
    with Store(tmp_path / "log.duckdb") as store:
        for number, start in enumerate(range(0, len(rows), 500), 1):
            store.commit(rows[start : start + 500], {"s": number})
        with store.cursor() as log:
            jobs = [job for (job,) in log.execute("SELECT DISTINCT job FROM jobs ORDER BY job").fetchall()]
            apps = log.execute("SELECT DISTINCT cluster, app FROM jobs ORDER BY ALL").fetchall()
        collector = Collector(store, "tcp://127.0.0.1:0")
        collector.start()
        try:
            with LogViews(collector.endpoint, clock=lambda: NOW + 900.0) as view:
                site = create(view, ModelerClient([AWAY], view.clock), {}, None)
                client = TestClient(site, base_url="http://127.0.0.1", raise_server_exceptions=False)
                pages = [*SHOWN, *(f"/job/{quote(job)}" for job in jobs)]
                pages += [f"/application?cluster={quote(cluster)}&app={quote(app)}" for cluster, app in apps]
                failed = {page: answer.status_code for page in pages if (answer := client.get(page)).status_code >= 500}
            assert not failed
            at = ["--collector", collector.endpoint]
            for words in (["status"], ["status", "--json"], ["work"], ["sql", "SELECT * FROM jobs"]):
                assert barograph([*words, *at]) == 0, words
            for job in jobs[:10]:
                assert barograph(["status", job, *at]) == 0
                assert barograph(["report", "--job", job, "--output", str(tmp_path / "job.html"), *at]) in (0, 65)
            for _, app in apps[:5]:
                if re.fullmatch(r"\w+", app):
                    assert barograph(["report", "--app", app, "--output", str(tmp_path / "app.html"), *at]) in (0, 65)
            for table in ("jobs", "runs", "blocks", "features"):
                output = str(tmp_path / f"{table}.parquet")
                assert barograph(["sql", f"FROM {table}", "--output", output, *at]) == 0
        except CommandError as error:
            raise AssertionError(str(error)) from error
        finally:
            assert collector.stop(60.0)
