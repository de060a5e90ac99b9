"""`barograph import`: works of imported runs, told apart by what the scheduler recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from barograph.cli import main
from barograph.imports import delivery as transport
from barograph.imports.delivery import CollectorUnreachable, Delivery
from barograph.imports.mapping import parse_map
from barograph.imports.record import RunRecord
from barograph.imports.sacct import read_sacct
from barograph.imports.swf import read_swf
from barograph.imports.table import read_table
from barograph.imports.works import WorkDigests
from barograph_agent.deliver.keys import load
from barograph_agent.protocol import wire
from barograph_collector.auth import keys
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.service import serve_metrics
from barograph_collector.server import Collector
from barograph_modeler.recognition.recorded import UnreadableSalt
from barograph_modeler.serving.page import PredictPage
from helpers.features import inline_features
from helpers.log import DEADLINE_SECONDS, collector_on
from helpers.works import new_modeler

SACCT = """\
JobID|JobName|State|ElapsedRaw|NTasks|NCPUS|User|Timelimit|ReqMem|SubmitLine
1|wing|COMPLETED|100||8|ann|01:00:00|4G|sbatch --dependency=afterok:7 -v job.sh wing.cfg
1.0|solver|COMPLETED|90|8|8||||srun -n 8 solver wing.cfg
2|rotor|COMPLETED|100||8|ann|||
2.0|solver|COMPLETED|90|8|8||||
"""
SWF = """\
1 0 10 100 32 -1 -1 32 200 -1 1 3 1 7 1 1 -1 -1
2 0 10 100 32 -1 -1 32 -1 512 1 3 1 -1 1 1 -1 -1
"""
SENTENCE = "works are told apart by user and job name: weaker than by what runs"


def csv_of(names: Sequence[str], column: str = "job_name", ranks: Sequence[int] = (4,)) -> str:
    """Two runs of each name at each scale; each name takes twice as long as the one before."""
    runs = [
        f"heat,{scale},{2**at * (100 + repeat)},{name}\n"
        for scale in ranks
        for repeat in range(2)
        for at, name in enumerate(names)
    ]
    return f"app,ranks,seconds,{column}\n" + "".join(runs)


def records_of(text: str) -> list[RunRecord]:
    return [
        one for one in read_table(iter(text.splitlines(keepends=True)), {}, "lab", "") if isinstance(one, RunRecord)
    ]


def run(collector: Collector, text: str, path: Path, *words: str) -> int:
    path.write_text(text)
    return main(["import", str(path), *words, "--collector", collector.endpoint, "--cluster", "lab"])


def rows(collector: Collector, table: str) -> list[dict[str, Any]]:
    """All rows of a table of the log."""
    with LogReader(collector.endpoint, DEADLINE_SECONDS) as log:
        pages = [page.columns for page in log.read_all(table)]
    return [
        dict(zip(one, values, strict=True)) for one in pages for values in zip(*map(list, one.values()), strict=True)
    ]


def groups(collector: Collector) -> dict[str, str]:
    """The groups to which a modeler assigns the jobs of the log."""
    modeler = new_modeler()
    for table in ("works", "jobs", "runs"):
        if found := rows(collector, table):
            modeler.observe(table, {name: [row[name] for row in found] for name in found[0]}, 0.0)
    outputs = [one.columns for one in modeler.step(0.0) if one.table == "assignments"]
    return {str(one["job"]): str(one["workload"]) for one in outputs if one["how"] != "merged"}


def by_seconds(collector: Collector) -> dict[str, set[bool]]:
    """For each group, whether runs of 200 s or more are in it, and whether shorter ones are."""
    long = {row["job"]: row["runtime_seconds"] >= 200 for row in rows(collector, "runs")}
    found: dict[str, set[bool]] = {}
    for job, group in groups(collector).items():
        found.setdefault(group, set()).add(long[job])
    return found


def test_runs_of_different_job_names_are_different_groups_and_of_one_name_the_same(collector, tmp_path, capsys):
    assert run(collector, csv_of(("wing", "rotor")), tmp_path / "h.csv") == 0
    assert capsys.readouterr().out.splitlines()[-1] == SENTENCE
    assert sorted(by_seconds(collector).values(), key=max) == [{False}, {True}]


def test_without_such_columns_there_is_one_group_and_nothing_in_works(collector, tmp_path, capsys):
    assert run(collector, csv_of(("wing", "rotor"), "comment"), tmp_path / "h.csv") == 0
    summary = "4 runs added, 0 known already\nnot learned: none\n0 bad lines\ncolumns not used: comment;"
    assert capsys.readouterr().out.startswith(summary)
    assert rows(collector, "works") == []
    assert by_seconds(collector) == {"lab/heat@4x0": {False, True}}


def test_a_column_can_be_mapped_to_the_job_name(collector, tmp_path):
    assert run(collector, csv_of(("wing", "rotor"), "comment"), tmp_path / "h.csv", "--map", "job_name=comment") == 0
    assert len(by_seconds(collector)) == 2
    assert parse_map(["job_name=a,requested_time=b"]) == {"job_name": "a", "requested_time": "b"}


def test_importing_again_adds_no_row_of_works(collector, tmp_path, capsys):
    file = tmp_path / "h.csv"
    assert run(collector, csv_of(("wing", "rotor")), file) == 0
    assert run(collector, csv_of(("wing", "rotor")), file) == 0
    assert capsys.readouterr().out.splitlines()[4] == "0 runs added, 4 known already"
    assert [len(rows(collector, table)) for table in ("jobs", "runs", "works")] == [4, 4, 4]


def test_runs_that_were_imported_without_job_names_stay_as_they_are(collector, tmp_path, capsys):
    file = tmp_path / "h.csv"
    assert run(collector, csv_of(("wing", "rotor"), "comment"), file) == 0
    assert run(collector, csv_of(("wing", "rotor")), file) == 0
    assert "0 runs added, 4 known already" in capsys.readouterr().out.splitlines()
    assert [len(rows(collector, table)) for table in ("jobs", "runs", "works")] == [4, 4, 0]


def test_an_import_that_was_interrupted_after_works_is_completed_by_the_next(collector, monkeypatch):
    records = records_of(csv_of(("wing", "rotor")))
    with monkeypatch.context() as patch, Delivery(collector.endpoint, works=WorkDigests()) as cut:
        patch.setattr(transport, "MESSAGES", ())
        assert len(list(cut.send(iter(records)))) == 4
    assert [len(rows(collector, table)) for table in ("jobs", "works")] == [0, 4]
    with Delivery(collector.endpoint, works=WorkDigests()) as whole:
        assert len(list(whole.send(iter(records)))) == 4
        assert (whole.added, whole.known, whole.refused, whole.work_refusal) == (4, 0, [], "")
    assert [len(rows(collector, table)) for table in ("jobs", "runs", "works")] == [4, 4, 4]


def test_a_retry_continues_with_the_row_of_works_where_the_run_has_been_welcomed(monkeypatch):
    monkeypatch.setattr(transport, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(transport, "TIMEOUT_SECONDS", 0.1)
    opened: list[str] = []
    with Delivery("tcp://127.0.0.1:1", works=WorkDigests()) as delivery:

        def send(endpoint: str, message: wire.FromClient) -> None:
            """Only the stream of the run is answered."""
            assert isinstance(message, wire.Hello)
            opened.append(message.stream)
            if not message.stream.endswith(transport.WORK):
                delivery._process(endpoint, wire.Welcome(message.stream, 0, 64))

        monkeypatch.setattr(delivery, "_send", send)
        with pytest.raises(CollectorUnreachable):
            list(delivery.send(iter(records_of(csv_of(("wing",)))[:1])))
    run, work, *retries = opened
    assert work == run + transport.WORK
    assert set(retries) == {work}


def test_where_rows_of_works_are_refused_the_runs_are_stored_and_the_last_line_has_the_reason(tmp_path, monkeypatch):
    directory = tmp_path / "keys"
    keys.init(directory)
    key = load(keys.add(directory, "importer", "history"))
    # What an importer may append is the collector's decision.
    monkeypatch.setattr("barograph_collector.auth.authorization.WHOLE_JOBS", frozenset({"jobs", "blocks", "runs"}))
    works = WorkDigests()
    with collector_on(tmp_path / "log.duckdb", keyring=keys.Keyring(directory)) as collector:
        records = records_of(csv_of(("wing", "rotor")))
        for one in records:
            works.note(one)
        with Delivery(collector.endpoint, key, works=works) as delivery:
            assert len(list(delivery.send(iter(records)))) == 4
    assert (delivery.added, delivery.refused) == (4, [])
    sentence = works.sentence(delivery.work_refusal)
    assert sentence.startswith("works are not told apart: refused by the collector: table is 'works', expected one of ")


def test_a_row_of_works_has_digests_only_and_they_depend_on_the_secret():
    (record, *_) = records_of(csv_of(("wing64",)))
    row, other = (WorkDigests(secret).row(record) for secret in (b"", b"secret"))
    assert row is not None
    assert other is not None
    assert "wing" not in json.dumps(row)
    assert row["program"] != other["program"]
    assert list(json.loads(row["folder"])) == list(json.loads(other["folder"])) == ["job name"]
    assert row["folder"] != other["folder"]
    assert (row["words"], row["plain"], row["reason"]) == ("[]", "", "")


def test_the_secret_is_that_of_the_agents_settings(tmp_path):
    (record, *_) = records_of(csv_of(("wing",)))
    salt = tmp_path / "salt"
    salt.write_text("secret\n")
    assert WorkDigests.of_site({"BAROGRAPH_SALT": str(salt)}).row(record) == WorkDigests(b"secret").row(record)
    assert WorkDigests.of_site({"BAROGRAPH_WORK": "none"}).row(record) is None
    salt.write_text("\n")
    with pytest.raises(UnreadableSalt, match="is empty, expected a secret"):
        WorkDigests.of_site({"BAROGRAPH_SALT": str(salt)})
    with pytest.raises(UnreadableSalt, match="No such file"):
        WorkDigests.of_site({"BAROGRAPH_SALT": str(tmp_path / "none")})


def test_an_import_without_its_secret_sends_nothing(collector, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BAROGRAPH_SALT", str(tmp_path / "none"))
    assert run(collector, csv_of(("wing",)), tmp_path / "h.csv") == 65
    assert capsys.readouterr().err == f"barograph import: salt {tmp_path}/none: No such file or directory\n"
    assert rows(collector, "jobs") == []


def test_sacct_steps_have_what_their_job_asked_for_without_options():
    first, second = (one for one in read_sacct(iter(SACCT.splitlines(keepends=True)), {}, "lab", "")
                     if isinstance(one, RunRecord))  # fmt: skip
    assert first.job.app == "solver"
    assert first.asked == {
        "job_name": "wing",
        "script": "sbatch job.sh wing.cfg",
        "requested_time": "01:00:00",
        "requested_memory": "4G",
    }
    assert second.asked == {"job_name": "rotor"}


def test_swf_has_executable_and_requested_time_and_memory():
    first, second = (one for one in read_swf(iter(SWF.splitlines(keepends=True)), "lab", "all")
                     if isinstance(one, RunRecord))  # fmt: skip
    assert first.asked == {"job_name": "7", "requested_time": "200"}
    assert second.asked == {"requested_memory": "512"}


def test_a_job_name_is_enough_to_predict_one_of_several_works(collector, tmp_path, capsys, monkeypatch):
    names = ("wing", "rotor 8x8")
    assert run(collector, csv_of(names, ranks=(2, 4, 8)), tmp_path / "h.csv") == 0
    modeler = new_modeler()
    for table in ("works", "jobs", "runs"):
        found = rows(collector, table)
        modeler.observe(table, {name: [row[name] for row in found] for name in found[0]}, 0.0)
    for _ in range(3):
        modeler.step(0.0)
    page = PredictPage(modeler.forecaster, inline_features())
    served = serve_metrics(CollectorRegistry(), "127.0.0.1", 0, {"/predict": page})
    try:
        host, port = served.address
        capsys.readouterr()

        def predict(*words: str) -> tuple[int, str]:
            status = main(["predict", "--app=heat", "--ranks=4", f"--modeler=http://{host}:{port}", *words])
            return status, capsys.readouterr().out

        assert predict()[0] == 65
        assert predict("--job-name=wing", "--cluster=lab")[1].startswith("heat (work=")
        for name, seconds in zip(names, (100, 200), strict=True):
            status, out = predict(f"--job-name={name}", "--cluster=lab", "--json")
            assert (status, round(json.loads(out)["expected_seconds"], -1)) == (0, seconds)
        assert predict("--job-name=wing") == predict("--job-name=wing", "--cluster=lab")
        # Numbers in names follow the number of ranks.
        assert json.loads(predict("--job-name=rotor 64x1", "--cluster=lab", "--json")[1])["refusal"] is None
        status, out = predict("--job-name=hull", "--cluster=lab")
        assert status == 65
        assert "Parameters that have been run" in out
        monkeypatch.setenv("BAROGRAPH_SALT", str(tmp_path / "none"))
        assert main(["predict", "--app=heat", "--ranks=4", "--job-name=wing", "--cluster=lab"]) == 65
        assert f"salt {tmp_path}/none: No such file or directory" in capsys.readouterr().err
    finally:
        served.stop()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["--like=lab/1", "--job-name=wing"],
            "--user and --job-name are of imported runs, expected neither --like nor a command after --",
        ),
        (["--job-name=wing"], "--app and --ranks are missing, expected both"),
    ],
)
def test_a_job_name_needs_an_application_and_nothing_else(words, text, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["predict", "--ranks=4", *words])
    assert text in capsys.readouterr().err
