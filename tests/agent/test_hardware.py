"""What the hardware of nodes counts, from trees of files as such nodes have them."""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from barograph_agent.kernel.hardware import processor
from barograph_agent.kernel.hardware.amd import AmdSource
from barograph_agent.kernel.hardware.links import LinkSource
from barograph_agent.kernel.hardware.processor import CoreSource
from barograph_agent.kernel.hardware.source import MEMORY_ERRORS, CounterSource
from barograph_agent.system.processes import Processes
from helpers.node import Node

CPU = "sys/devices/system/cpu"


IB, CXI, NET = "sys/class/infiniband/mlx5_0/ports/1", "sys/class/cxi/cxi0/device/telemetry", "sys/class/net"
GPU = "sys/class/drm/card1/device"


class Tree:
    """Files below a folder, by path from /."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = Processes()
        self.files.root = str(root)

    def write(self, path: str, value: object) -> None:
        """Write one in place, as the kernel does."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")

    def core(self, core: int, khz: int | None = 2_700_000, throttled: int = 0, package: int = 0, hot: int = 0) -> None:
        """A core of a package, of which either was throttled so many times."""
        if khz is not None:
            self.write(f"{CPU}/cpu{core}/cpufreq/scaling_cur_freq", khz)
        self.write(f"{CPU}/cpu{core}/thermal_throttle/core_throttle_count", throttled)
        self.write(f"{CPU}/cpu{core}/thermal_throttle/package_throttle_count", hot)
        self.write(f"{CPU}/cpu{core}/topology/physical_package_id", package)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_the_clock_is_that_of_slow_cores_but_not_of_one_that_was_just_woken(tree):
    for core, khz in enumerate([800_000, 1_900_000, 1_900_000, 1_900_000, 2_700_000, 2_700_000, 2_700_000, 2_700_000]):
        tree.core(core, khz)
    assert CoreSource(tree.files).read(range(8))["clock_hz"] == 1.9e9
    assert CoreSource(tree.files).read([4, 7])["clock_hz"] == 2.7e9


def test_throttles_are_growth_of_cores_and_once_of_each_package(tree):
    source = CoreSource(tree.files)
    for core in range(4):
        tree.core(core, throttled=7, package=core // 2, hot=100)
    assert source.read(range(4))["throttles"] == 0
    for core in range(4):
        tree.core(core, throttled=7 + core, package=core // 2, hot=110)
    assert source.read(range(4))["throttles"] == 0 + 1 + 2 + 3 + 2 * 10
    tree.core(0, throttled=2, hot=110)  # begun anew
    tree.core(9, throttled=5, package=1, hot=110)  # what was before a rank came there does not count
    assert source.read([0, 1, 2, 3, 9])["throttles"] == 2


@pytest.mark.parametrize("text", ["", "<unknown>", "-5", "9" * 80])
def test_what_is_missing_or_strange_is_unknown(tree, text):
    assert math.isnan(CoreSource(tree.files).read([0])["throttles"])
    tree.core(1, None)
    tree.write(f"{CPU}/cpu1/cpufreq/scaling_cur_freq", text)
    found = CoreSource(tree.files).read([0, 1])
    assert math.isnan(found["clock_hz"])
    assert found["throttles"] == 0


def test_however_many_cores_a_node_has_few_files_are_read_and_stay_open(tree, monkeypatch):
    for core in range(256):
        tree.core(core, package=core // 64)
    opened, read = [], []
    number, open_ = tree.files.number, os.open
    monkeypatch.setattr(os, "open", lambda path, flags: opened.append(path) or open_(path, flags))
    monkeypatch.setattr(tree.files, "number", lambda path: read.append(path) or number(path))
    source = CoreSource(tree.files)
    for _ in range(3):
        read.clear()
        assert source.read(range(256)) == {"clock_hz": 2.7e9, "throttles": 0}
    assert len(read) <= 2 * processor.MAX_CORES + 4
    assert len(opened) == len(set(opened)) <= 3 * processor.MAX_CORES + 4


def test_errors_of_memory_are_those_of_all_controllers(tree):
    assert math.isnan(CounterSource(tree.files, "memory_errors", MEMORY_ERRORS).read()["memory_errors"])
    for number in range(2):
        tree.write(f"sys/devices/system/edac/mc/mc{number}/ce_count", 100)
        tree.write(f"sys/devices/system/edac/mc/mc{number}/ue_count", 0)
        tree.write(f"sys/devices/system/edac/mc/mc{number}/ce_noinfo_count", 7)
    source = CounterSource(tree.files, "memory_errors", MEMORY_ERRORS)
    assert source.read() == {"memory_errors": 0}
    tree.write("sys/devices/system/edac/mc/mc0/ce_count", 130)
    tree.write("sys/devices/system/edac/mc/mc1/ue_count", 1)
    assert source.read() == {"memory_errors": 31}


def link_up(tree: Tree) -> None:
    """One adapter of each kind, and interfaces that are none."""
    tree.write(f"{IB}/rate", "200 Gb/sec (4X HDR)")
    tree.write(f"{IB}/counters/symbol_error", 5)
    tree.write(f"{CXI}/hni_pcs_uncorrected_cw", "90049@1675489372.701036980")
    for name, speed in (("eth0", "25000"), ("down0", "-1"), ("lo", ""), ("tun0", "10")):
        tree.write(f"{NET}/{name}/speed", speed)
        tree.write(f"{NET}/{name}/statistics/rx_errors", 0)
        if name in ("eth0", "down0"):
            (tree.root / NET / name / "device").mkdir()


def test_links_are_adapters_of_the_node_that_are_up(tree):
    assert all(math.isnan(one) for one in LinkSource(tree.files).read([]).values())
    link_up(tree)
    source = LinkSource(tree.files)
    assert source.read([]) == {"link_rate": 225e9, "link_errors": 0}
    tree.write(f"{IB}/rate", "100 Gb/sec (2X HDR)")
    tree.write(f"{IB}/counters/symbol_error", 7)
    tree.write(f"{CXI}/hni_pcs_uncorrected_cw", "90149@1675489382.701036980")
    tree.write(f"{NET}/eth0/statistics/rx_errors", 1000)
    tree.write(f"{NET}/tun0/statistics/rx_errors", 10**6)
    assert source.read([]) == {"link_rate": 125e9, "link_errors": 2 + 100 + 1000}


def test_accelerators_of_amd_count_while_they_are_busy(tree):
    assert AmdSource(tree.files).read([]) == {}
    for card, clock, heat, busy in (
        (1, 1_700_000_000, 60_000, 99),
        (2, 900_000_000, 91_000, 99),
        (3, 132_000_000, 30, 0),
    ):
        device = GPU.replace("card1", f"card{card}")
        tree.write(f"{device}/gpu_busy_percent", busy)
        tree.write(f"{device}/hwmon/hwmon{card}/freq1_input", clock)
        tree.write(f"{device}/hwmon/hwmon{card}/temp1_input", heat)
        tree.write(f"{device}/ras/umc_err_count", "ue: 0\nce: 5")
    source = AmdSource(tree.files)
    slow = {"accelerator_clock_hz": 900e6, "accelerator_celsius": 91.0}
    assert source.read([]) == slow | {"accelerator_errors": 0}
    tree.write(f"{GPU}/ras/umc_err_count", "ue: 2\nce: 9")
    assert source.read([]) == slow | {"accelerator_errors": 2}


PROGRAM = Path(__file__).parent / "programs/nvml.c"
ASK = """
import json, sys, time
from barograph_agent.kernel.hardware.nvidia import NvidiaSource
source = NvidiaSource(*sys.argv[1:])
for _ in range(3):
    print(json.dumps(source.read([])))
    if source._task: source._task.wait(60.0)
"""


def test_accelerators_of_nvidia_are_asked_by_the_library_of_their_driver(tree, tmp_path):
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", tmp_path / "nvml.so", PROGRAM], check=True)

    def ask(driver: str, **more: str) -> list[dict[str, float]]:
        # In a process of its own: the library remembers which driver it has.
        command = [sys.executable, "-c", ASK, str(tree.root), driver]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | more)
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert ask(str(tmp_path / "nvml.so")) == [{}] * 3, "there is no such device"
    tree.write("dev/nvidiactl", "")
    known = {"accelerator_clock_hz": 1.4e9, "accelerator_limited": 0.5, "accelerator_celsius": 90.0}
    assert ask(str(tmp_path / "nvml.so")) == [{}, known | {"accelerator_errors": 3}, known | {"accelerator_errors": 0}]
    assert ask(str(tmp_path / "nvml.so"), NVML_FAILS="1") == ask(str(PROGRAM)) == [{}] * 3


@pytest.fixture
def node(tree: Tree) -> Node:
    tree.core(1)
    return Node(str(tree.root))


def test_a_node_whose_cores_become_slower_has_rows_after_that_of_the_quiet_time_before(node, tree):
    assert node.live(24, ran=1.0) == []
    tree.core(1, 1_900_000, throttled=50)
    quiet, *slow = node.live(20, ran=1.0)
    assert (quiet["clock_hz"], quiet["throttles"]) == (2.7e9, 0)
    assert [(row["rank"], row["clock_hz"]) for row in slow] == [(-1, 1.9e9)] * 5
    assert sum(row["throttles"] for row in slow) == 50


def test_a_little_slower_is_nothing_and_counts_as_the_mean(node, tree):
    node.live(21, ran=1.0)
    tree.core(1, 2_500_000)
    [row] = node.live(20, ran=1.0)
    assert 2.5e9 < row["clock_hz"] < 2.7e9


def test_hardware_is_read_each_ten_seconds_and_in_each_span_of_a_job_that_may_be_slow(node, monkeypatch):
    times = []
    monkeypatch.setattr(CoreSource, "read", lambda self, cores: times.append((node.now, cores)) or {})
    node.live(41, ran=1.0)
    assert [one - times[0][0] for one, _ in times] == [0, 12, 24, 36]
    assert all(cores == [1] for _, cores in times)
    times.clear()
    node.live(20, ran=1.0, delay=0.5)
    assert len(times) == 5
    times.clear()
    node.live(40, "S", ran=1.0)
    assert {tuple(cores) for _, cores in times} == {()}, "the cores of ranks that sleep are slow for want of work"
