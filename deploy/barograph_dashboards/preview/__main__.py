"""`python -m barograph_dashboards.preview DASHBOARD PICTURE`: what a dashboard shows of a Prometheus, nearly."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from barograph_dashboards.preview.dashboard import Dashboard
from barograph_dashboards.preview.draw import THEMES, draw
from barograph_dashboards.preview.prometheus import Prometheus, QueryError

UNAVAILABLE = 69


def main(words: list[str] | None = None) -> int:
    """Draw; 69 where Prometheus does not answer, or not what it was asked."""
    parser = argparse.ArgumentParser(prog="python -m barograph_dashboards.preview", description=__doc__)
    parser.add_argument("dashboard", type=Path, help="a file of deploy/grafana/dashboards")
    parser.add_argument("picture", type=Path, help="the PNG to write")
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", metavar="URL")
    parser.add_argument("--theme", choices=THEMES, default="dark")
    parser.add_argument("--hours", type=float, default=1.0, help="time range (default: %(default)s)")
    parser.add_argument("--until", type=float, metavar="SECONDS", help="its end as Unix time (default: now)")
    parser.add_argument("--rate-interval", default="1m", help="over which rates are taken (default: %(default)s)")
    parser.add_argument("--var", action="append", default=[], metavar="NAME=VALUE", help="a variable of the dashboard")
    options = parser.parse_args(words)
    given = dict(one.partition("=")[::2] for one in options.var)
    until = time.time() if options.until is None else options.until
    try:
        prometheus = Prometheus(options.prometheus, until - 3600 * options.hours, until)
        draw(Dashboard(options.dashboard, prometheus, options.rate_interval, given), options.theme, options.picture)
    except QueryError as error:
        print(f"preview: {error}", file=sys.stderr)
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
