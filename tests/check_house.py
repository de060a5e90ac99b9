"""Rules of the house that `make check` enforces: a public class name stands for one class, folders have few modules,
packages do not grow, and one room calls the operating system for time, durable files and sockets.

Prints each finding on a line and exits with 1 where there is one.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("agent", "collector", "modeler", "alerts", "deploy")
LABORATORY: Final = "modeler/barograph_lab"
MOST_SIBLINGS: Final = 13
"""Modules side by side, `__init__.py` included."""
MAX_LINES: Final = {
    "agent": 13_107,
    "collector": 9_355,
    "modeler": 14_531,
    LABORATORY: 8_428,
    "alerts": 7_644,
    "deploy": 9_812,
    "tests": 60_745,
}
"""Lines of Python of each package, at most. A number may only fall: a change that adds lines removes as many."""
OUTSIDE: Final = {
    "time": {"clock_gettime", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "sleep",
             "thread_time", "time", "time_ns"},
    "os": {"fdatasync", "fsync"},
    "socket": {"socket"},
    "threading": {"Event", "Lock"},
    "queue": {"SimpleQueue"},
}  # fmt: skip
"""Calls that only SYSTEM makes, by module."""
SYSTEM: Final = "agent/barograph_agent/system/"
UNSIMULATED: Final = (
    "modeler/barograph_lab/", "/demo/",
    "agent/shim/",
    # In the application's process.
    "agent/barograph_agent/api/", "agent/barograph_agent/training/",
    # Talk to systemd and to browsers.
    "collector/barograph_collector/daemon/", "collector/barograph_collector/net/wakeup_queue.py",
    "modeler/barograph_modeler/main.py", "modeler/barograph_modeler/serving/", "alerts/barograph_alerts/main.py",
    "deploy/barograph/site/", "deploy/barograph/operate/supervisor.py", "deploy/barograph/views/log.py",
    # Interrupts DuckDB.
    "collector/barograph_collector/query/sql.py",
)  # fmt: skip
"""What is tested with real processes."""


def class_names(files: list[Path]) -> list[str]:
    """Public names that more than one class has."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(REPOSITORY)))
    return [
        f"class {name}: in {', '.join(found)}; expected one class of this name"
        for name, found in sorted(places.items())
        if len(found) > 1
    ]


def crowded(files: list[Path]) -> list[str]:
    """Folders with more modules than a reader takes in at once."""
    folders: defaultdict[Path, int] = defaultdict(int)
    for file in files:
        folders[file.parent] += 1
    return [
        f"{folder.relative_to(REPOSITORY)}: {count} modules side by side, expected at most {MOST_SIBLINGS}"
        for folder, count in sorted(folders.items())
        if count > MOST_SIBLINGS
    ]


def grown(files: list[Path]) -> list[str]:
    """Packages that have more lines than MAX_LINES."""
    lines: defaultdict[str, int] = defaultdict(int)
    for file in files:
        place = str(file.relative_to(REPOSITORY))
        lines[LABORATORY if place.startswith(LABORATORY) else place.partition("/")[0]] += file.read_text().count("\n")
    return [
        f"{package}: {lines[package]:,} lines of Python, expected at most {most:,}: remove what is no longer needed"
        for package, most in MAX_LINES.items()
        if lines[package] > most
    ]


def outside(files: list[Path]) -> list[str]:
    """Calls of the operating system outside of SYSTEM: a simulation does not reach them."""
    found = []
    for file in files:
        place = str(file.relative_to(REPOSITORY))
        if place.startswith(SYSTEM) or any(part in place for part in UNSIMULATED):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            # Annotations name types without calling them.
            name = node.func if isinstance(node, ast.Call) else None
            if isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name):
                module, attribute = name.value.id, name.attr
                if attribute in OUTSIDE.get(module, ()):
                    found.append(f"{place}:{node.lineno}: {module}.{attribute}, expected a parameter from {SYSTEM}")
            if isinstance(node, ast.ImportFrom) and (names := OUTSIDE.get(node.module or "")):
                found += [f"{place}:{node.lineno}: {one.name}" for one in node.names if one.name in names]
    return found


def main() -> int:
    """The exit status."""
    files = sorted(file for package in PACKAGES for file in (REPOSITORY / package).rglob("*.py"))
    tests = list((REPOSITORY / "tests").rglob("*.py"))
    findings = class_names(files) + crowded(files) + grown(files + tests) + outside(files)
    fine = f"{len(files)} modules: no class name twice, no crowded folder, no grown package, one room calls the system"
    print("\n".join(findings) or fine)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
