"""Which nodes the others waited for, in the report: by blocks of different lengths, as alerts compares them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import duckdb
import pytest

from barograph.views import queries
from barograph_alerts.attribution.alignment import Alignment, Part

COLUMNS = ("job", "world", "host", "first_index", "length", "count", "ranks", "own_seconds", "p2p_seconds",
           "wait_seconds", "least_wait_seconds")  # fmt: skip


def empty_log() -> duckdb.DuckDBPyConnection:
    log = duckdb.connect()
    kinds = ("TEXT" if name in ("job", "host") else "DOUBLE" if "seconds" in name else "BIGINT" for name in COLUMNS)
    columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(COLUMNS, kinds, strict=True))
    log.execute(f"CREATE TABLE node_blocks ({columns})")
    return log


def tiled(chance: random.Random, host: str) -> list[tuple]:
    """Rows of a node from sync point 0 to 256, in blocks of any length, of which some are lost."""
    at, rows = 0, []
    while at < 256:
        length = 1 << chance.randrange(min(64, (at & -at) or 64, 256 - at).bit_length())
        if chance.random() < 0.95:
            rows.append(("j", 0, host, at, length, length, 2, 4e-3 * length, 0.0, 1e-3 * length,
                         chance.random() * length))  # fmt: skip
        at += length
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_the_shares_are_those_of_the_ranges_that_alerts_compares(seed):
    chance = random.Random(seed)
    rows = [row for host in ("n1", "n2", "n3") for row in tiled(chance, host)]
    alignment = Alignment(3, Counter())
    found = []
    for _, _, host, first, length, count, ranks, own, _, wait, least in rows:
        found.append(alignment.add(host, Part(ranks, count, own, 0.0, wait, least, 0.0, [(first, first + length)])))
    late: dict[str, int] = defaultdict(int)
    total = 0
    for whole in filter(None, [*found, *alignment.finish()]):
        length = next(iter(whole.values())).length
        late[min(whole, key=lambda host: whole[host].least_wait / whole[host].count)] += length
        total += length
    log = empty_log()
    log.executemany(f"INSERT INTO node_blocks VALUES ({', '.join('?' * len(COLUMNS))})", rows)
    answer = log.sql(queries.late_nodes("job = 'j'"))
    shares = {row[0]: row[-1] for row in answer.fetchall()}
    assert shares == {host: pytest.approx(late[host] / total) for host in ("n1", "n2", "n3")}


def test_nodes_that_share_no_sync_points_have_no_share():
    log = empty_log()
    for host, first in (("n1", 0), ("n2", 64)):
        row = ("j", 0, host, first, 64, 64, 2, 0.1, 0.0, 0.1, 0.1)
        log.execute(f"INSERT INTO node_blocks VALUES ({', '.join('?' * len(row))})", row)
    assert [row[-1] for row in log.sql(queries.late_nodes("job = 'j'")).fetchall()] == [None, None]
