"""The products of `make dist`, installed without a compiler and without the repository."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from barograph.cli import COMMANDS
from helpers.mpi import REPOSITORY, missing

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

LOOP = "from mpi4py import MPI\nfor _ in range(50): MPI.COMM_WORLD.Barrier()\n"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob(f"*_{platform.machine()}.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; what it depends on comes from the environment the tests run in."""
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(packages, "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    install = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    # The shell's own programs, and no compiler.
    subprocess.run([*install, "--ignore-installed", wheel], check=True, env={"PATH": "/nowhere"})
    return folder


def test_the_wheel_holds_the_packages_the_shim_and_what_operators_need_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    tops = {name.partition("/")[0] for name in names}
    packages = {f"barograph{name}" for name in ("", "_agent", "_collector", "_modeler", "_alerts", "_lab")}
    info = {f"barograph-{wheel.name.split('-')[1]}.{kind}" for kind in ("data", "dist-info")}
    assert tops == packages | info
    assert {f"{package}/py.typed" for package in packages} | {"barograph_agent/libbarograph.so"} <= names
    shared = {name.partition(".data/data/")[2] for name in names if ".data/data/" in name}
    assert {f"share/barograph/{path}" for path in beside_the_packages()} <= shared
    assert "share/man/man1/barograph.1" in shared


def test_the_wheel_is_for_any_linux_since_glibc_2_17(wheel):
    assert "-py3-none-manylinux" in wheel.name
    assert "manylinux_2_17_" in wheel.name


def test_there_is_a_wheel_for_each_machine_with_a_shim_for_it(dist):
    machines = {"x86_64": 62, "aarch64": 183}
    for machine, number in machines.items():
        (path,) = dist.glob(f"*manylinux_2_17_{machine}.whl")
        with zipfile.ZipFile(path) as archive:
            header = archive.read("barograph_agent/libbarograph.so")[:20]
        assert header[:4] == b"\x7fELF"
        assert int.from_bytes(header[18:20], "little") == number
    assert len(list(dist.glob("*.whl"))) == len(machines)


def test_it_installs_without_a_compiler_and_watches_an_mpi_program(installed, tmp_path):
    program = tmp_path / "loop.py"
    program.write_text(LOOP)
    environment = {**os.environ, "BAROGRAPH_COLLECTOR": "tcp://127.0.0.1:1", "BAROGRAPH_SPOOL": str(tmp_path / "spool")}
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [installed / "bin/barograph", "run", "--drain", "0.1", "--", mpiexec, "-n", "2"]
    done = subprocess.run(
        [*command, sys.executable, program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "intervals 50 seen on 2 ranks" in done.stderr


def test_what_can_be_executed_in_the_repository_can_where_it_is_installed(installed):
    for path in beside_the_packages():
        executable = os.access(REPOSITORY / "deploy" / path, os.X_OK)
        assert os.access(installed / "share/barograph" / path, os.X_OK) or not executable, path


def test_files_prints_the_paths_of_the_rules(installed):
    done = subprocess.run([installed / "bin/barograph", "files", "rules"], capture_output=True, text=True, check=True)
    paths = [Path(line) for line in done.stdout.splitlines()]
    assert installed / "share/barograph/rules/barograph.rules.yml" in paths
    assert all(path.is_file() for path in paths)


def test_the_sdist_builds_with_a_compiler_and_brings_the_man_page(dist, tmp_path):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/agent/shim/writer.c") for name in archive.getnames())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", tmp_path, sdist], check=True)
    (built,) = tmp_path.glob("*-linux_*.whl")
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
    assert "barograph_agent/libbarograph.so" in names
    assert any(name.endswith("share/man/man1/barograph.1") for name in names)


def test_the_man_page_is_clean_has_every_command_and_nothing_of_this_machine(installed):
    page = installed / "share/man/man1/barograph.1"
    if shutil.which("mandoc") is None:
        missing("no mandoc: tests/install-packages installs it")
    lint = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], capture_output=True, text=True, check=False)
    assert (lint.returncode, lint.stdout) == (0, "")
    text = subprocess.run(["mandoc", "-Tascii", page], capture_output=True, text=True, check=True).stdout
    words = " ".join(re.sub(".\b", "", text).split())
    assert not {name for name in COMMANDS if f"barograph {name}" not in words}
    assert str(Path.home()) not in words
    assert str(REPOSITORY) not in words


def test_bash_completes_commands_and_options(installed):
    script = installed / "share/bash-completion/completions/barograph"
    assert completed(script, "barograph", "sta") == ["status"]
    assert "--collector" in completed(script, "barograph", "status", "--")
    assert completed(script, "barograph", "status", "--state", "st") == ["stalled"]


def test_zsh_reads_the_completion(installed):
    if shutil.which("zsh") is None:
        missing("no zsh: tests/install-packages installs it")
    subprocess.run(["zsh", "-n", installed / "share/zsh/site-functions/_barograph"], check=True)


def beside_the_packages() -> list[str]:
    """What deploy/ and alerts/rules hold beside Python packages, relative to deploy/ or alerts/."""
    command = ["git", "ls-files", "deploy", "alerts/rules"]
    tracked = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    packages = tuple(path.removesuffix("__init__.py") for path in tracked if path.endswith("/__init__.py"))
    return [path.partition("/")[2] for path in tracked if not path.startswith(packages)]


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    ask = (
        f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1};"
        " $(complete -p barograph | sed 's/.*-F \\([^ ]*\\).*/\\1/') barograph; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.split()
