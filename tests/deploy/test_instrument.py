"""`barograph instrument` and `barograph features`, on programs that are compiled and run."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from barograph.cli import main
from barograph_agent.feature_files.side_file import BadSideFile, merge, read_side_file
from helpers import mpi as mpis

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None and not os.environ.get("CI"),
    reason="no C compiler for instrumented sources",
)

PROGRAMS = Path(__file__).parent / "programs"
C = (PROGRAMS / "branches.c").read_text()
CHOICES = (PROGRAMS / "choices.c").read_text()
HEADER = (PROGRAMS / "loops.hpp").read_text()
MAIN = (PROGRAMS / "main.cpp").read_text()
OTHER = """
#include "lib/loops.hpp"
int other(int n) { return count_down(n + 0L) + shared(n) + deep::twice(n); }
"""
CPP = (PROGRAMS / "solver.cpp").read_text()


def run(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def compiled(source: Path, *flags: str) -> Path:
    target = source.with_suffix("")
    compiler = "c++" if source.suffix == ".cc" else "cc"
    done = run(compiler, "-O2", "-Wall", "-Werror", *flags, source, "-o", target)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def program(tmp_path):
    """A C program with constructs that are hard to instrument, and a header."""
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "scale.h").write_text("static inline int scale(int x) { return x * 3; }\n")
    (folder / "program.c").write_text(C)
    return folder / "program.c"


def instrument(*words: object) -> int:
    return main(["instrument", *map(str, words)])


def features(folder: Path) -> dict[str, float]:
    """Feature values of a run by `line:kind` of the source."""
    (path,) = folder.glob("*.features")
    found = read_side_file(path).features
    return {
        ":".join(name.split(":")[i] for i in range(1, len(name.split(":"))) if i != 2): f.value
        for name, f in found.items()
    }


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(C.splitlines(), 1) if text in line)


def test_a_program_with_probes_behaves_as_without(program, tmp_path):
    assert instrument(program, "-o", tmp_path / "out") == 0
    before, after = compiled(program), compiled(tmp_path / "out" / "program.c")
    for argument in ("0", "1", "5", "50"):
        assert run(after, argument).stdout == run(before, argument).stdout


@pytest.mark.parametrize("standard", ["-std=c99", "-std=gnu11", "-std=gnu2x"])
def test_instrumented_sources_compile_under_each_standard(program, tmp_path, standard):
    program.write_text(C.replace("({ int s = 3; s = s + 1; })", "4").replace("raise(SIGKILL)", "abort()"))
    assert instrument(program, "-o", tmp_path / "out") == 0
    assert run(compiled(tmp_path / "out" / "program.c", standard), "5").stdout


def test_cpp_with_templates_lambdas_and_constants_behaves_as_without(tmp_path):
    (tmp_path / "solver.cc").write_text(CPP)
    assert instrument(tmp_path / "solver.cc", "-o", tmp_path / "out", "--", "-std=c++17") == 0
    before = run(compiled(tmp_path / "solver.cc", "-std=c++17")).stdout
    assert run(compiled(tmp_path / "out" / "solver.cc", "-std=c++17")).stdout == before != ""


def by_text(folder: Path, source: str, text: str, kind: str, at: int = 0) -> float:
    """The value of the feature whose place starts with a text, in the first side file that has it."""
    line = next(i for i, line in enumerate(source.splitlines(), 1) if text in line)
    column = source.splitlines()[line - 1].index(text) + at + 1
    values = [
        one.value
        for path in folder.glob("*.features")
        for name, one in read_side_file(path).features.items()
        if name.split(":", 1)[1] == f"{line}:{column}:{kind}"
    ]
    return max(values)


def test_switches_and_conditional_expressions_behave_as_before_and_are_counted(tmp_path, capsys):
    source = tmp_path / "choices.c"
    source.write_text(CHOICES)
    assert instrument(source, "-o", tmp_path / "out", "--list") == 0
    listed = capsys.readouterr().out
    for reason in (
        "switch label from a macro",
        "switch label outside a block",
        "conditional expression from a macro",
        "conditional expression that is decided by the compiler",
    ):
        assert reason in listed
    before, after = compiled(source), compiled(tmp_path / "out" / "choices.c")
    (tmp_path / "run").mkdir()
    done = run(after, BAROGRAPH_FEATURES=str(tmp_path / "run"))
    assert done.stdout == run(before).stdout != ""
    assert done.returncode == 0

    def value(text: str, kind: str, at: int = 0) -> float:
        return by_text(tmp_path / "run", CHOICES, text, kind, at)

    assert value("case 1: total", "taken") == 2  # 0 and 1
    assert value("case 2 ... 3", "taken") == 4  # 2 and 3, and 0 and 1 fall through
    assert value("case 4:", "taken") == 1
    assert value("default:", "taken") == 2  # 5 and 6; 9 is a case, 7 and 8 are of the macro
    assert (value("i > 5 ? 3", "taken"), value("i > 5 ? 3", "passed")) == (0, 0)  # never reached: next() > 1
    assert value("i % 2 ?", "taken") == value("i % 2 ?", "passed") == 5
    assert value("(i % 2 ? i > 4", "taken") == 5  # 5, 7 and 9, 0 and 2
    assert value("i > 3 ? i < 8", "taken") == 6


def test_loops_in_headers_are_counted_in_every_source_that_includes_them(tmp_path, capsys):
    folder = tmp_path / "src"
    (folder / "lib").mkdir(parents=True)
    for name, text in (("lib/loops.hpp", HEADER), ("main.cc", MAIN), ("other.cc", OTHER)):
        (folder / name).write_text(text)
    sources = [folder / "main.cc", folder / "other.cc"]
    assert instrument(*sources, "-o", tmp_path / "out", "--list", "--", "-std=c++17") == 0
    assert "loops.hpp: " in (out := capsys.readouterr().out)
    assert "function folded is constexpr" in out
    assert "conditional expression of a vector or an unknown type" in out  # T may be a vector of numbers

    def built(place: Path) -> Path:
        target = place / "program"
        done = run("c++", "-O2", "-Wall", "-Werror", "-std=c++17", place / "main.cc", place / "other.cc", "-o", target)
        assert done.returncode == 0, done.stderr
        return target

    (tmp_path / "run").mkdir()
    done = run(built(tmp_path / "out"), BAROGRAPH_FEATURES=str(tmp_path / "run"))
    assert done.stdout == run(built(folder)).stdout != ""

    def value(text: str, kind: str) -> float:
        return by_text(tmp_path / "run", HEADER, text, kind)

    assert value("while (n > 0)", "iterations") == 5  # in main; 4 in the other source
    assert value("for (int i = 0", "iterations") == 10  # one function for both sources: 6 and 4
    assert value("for (auto &cell", "iterations") == 4
    assert value("case 1: return", "taken") == 1
    # A source that was not instrumented can include the header all the same.
    alone = tmp_path / "out" / "alone.cc"
    alone.write_text(OTHER)
    assert run("c++", "-Wall", "-Werror", "-std=c++17", "-c", alone, "-o", tmp_path / "alone.o").returncode == 0


def test_inline_functions_of_c_with_external_linkage_are_left_alone(tmp_path, capsys):
    (tmp_path / "h.h").write_text("inline int f(int n) { int t = 0; while (n-- > 0) t++; return t; }\n")
    (tmp_path / "m.c").write_text(
        '#include "h.h"\nextern int f(int);\nint main(int c, char **v) { return f(c) - 1; }\n'
    )
    assert instrument(tmp_path / "m.c", "-o", tmp_path / "out", "--list") == 0
    assert (tmp_path / "out" / "h.h").read_text() == (tmp_path / "h.h").read_text()
    assert run(compiled(tmp_path / "out" / "m.c")).returncode == 0


def test_features_are_the_counts_and_values_computed_by_hand(program, tmp_path):
    assert instrument(program, "-o", tmp_path / "out") == 0
    (tmp_path / "run").mkdir()
    assert run(compiled(tmp_path / "out" / "program.c"), "5", BAROGRAPH_FEATURES=str(tmp_path / "run")).returncode == 0
    found = features(tmp_path / "run")
    assert found[f"{line_of('atoi')}:value:n"] == 5
    assert found[f"{line_of('g.width =')}:value:g.width"] == 10
    assert found[f"{line_of('int a = 0')}:iterations"] == 5
    assert found[f"{line_of('++c')}:iterations"] == 15
    assert found[f"{line_of('while (noisy')}:iterations"] == 5
    assert found[f"{line_of('while (noisy')}:taken"] == 3  # 1, 3 and 5 are odd
    assert found[f"{line_of('while (noisy')}:passed"] == 2
    assert found[f"{line_of('do total')}:iterations"] == 4  # the condition holds for 4, 3, 2, 1
    assert found[f"{line_of('argc > 2')}:taken"] == 0
    assert found[f"{line_of('int inner')}:value:inner"] == 12
    assert f"{line_of('pairs[noisy')}:value:pairs[noisy(1)]" not in found  # would call noisy again


def test_a_killed_program_leaves_its_features(program, tmp_path):
    assert instrument(program, "-o", tmp_path / "out") == 0
    (tmp_path / "run").mkdir()
    done = run(compiled(tmp_path / "out" / "program.c"), "5", "die", BAROGRAPH_FEATURES=str(tmp_path / "run"))
    assert done.returncode == -signal.SIGKILL
    assert features(tmp_path / "run")[f"{line_of('++c')}:iterations"] == 15
    (path,) = (tmp_path / "run").glob("*.features")
    assert read_side_file(path).ended_at is None


@pytest.mark.parametrize("folder", ["", "/nowhere/at/all"])
def test_without_a_feature_folder_a_program_runs_as_usual(program, tmp_path, folder):
    assert instrument(program, "-o", tmp_path / "out") == 0
    done = run(compiled(tmp_path / "out" / "program.c"), "5", BAROGRAPH_FEATURES=folder)
    assert done.returncode == 0
    assert done.stderr == ""


def test_places_without_probes_are_listed_with_their_lines(program, tmp_path, capsys):
    assert instrument(program, "-o", tmp_path / "out", "--list") == 0
    out = capsys.readouterr().out
    assert f"line {line_of('    TWICE(total')}: for from a macro" in out
    assert f"line {line_of('    ONLY_IF(total')}: if from a macro" in out
    assert f"line {line_of('int statement')}: statement expression" in out


def test_assignments_of_macros_get_no_probes(tmp_path, capsys):
    """As the timers of miniFE, whose names are not those of the source, or hidden in a block of the macro."""
    (tmp_path / "clock.h").write_text(
        "#define TICK() t0 = now();\n#define TOCK(t) t += now() - t0;\n"
        "#define TIMED(sum, call) { double began = now(); call; double sum = now() - began; total += sum; }\n"
    )
    lines = ["double now(void) { return 1.0; }", "int main(int n, char **a) {", "double t0 = 0, t = 0, total = 0;",
             "int shifted = n;", "TICK(); n += 3; TOCK(t);", "TIMED(t, n = n * 2)", "shifted /* twice */ <<= 1;",
             "return t + total + shifted + n < 0; }"]  # fmt: skip
    source = tmp_path / "timed.c"
    source.write_text('#include "clock.h"\n' + "\n".join(lines))
    assert instrument(source, "-o", tmp_path / "out", "--list") == 0
    assert capsys.readouterr().out.count("assignment from a macro") >= 4
    (tmp_path / "run").mkdir()
    done = run(compiled(tmp_path / "out" / "timed.c"), BAROGRAPH_FEATURES=str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert features(tmp_path / "run") == {
        "4:value:t0": 0, "4:value:t": 0, "4:value:total": 0, "5:value:shifted": 1, "6:value:n": 4,
        "8:value:shifted": 2,
    }  # fmt: skip


def test_statements_after_a_pragma_get_no_probes(tmp_path, capsys):
    lines = ["int main(int n, char **a) {", "int s = 0;", "#pragma omp parallel for \\", "    reduction(+ : s)",
             "for (int i = 0; i < n; i++) s += i;", "  #pragma omp simd", "", "  # pragma GCC ivdep",
             "while (n > 0) n--;",
             "#pragma omp barrier", "/* before it */ s = 1;", "return s + (a == 0); }", ""]  # fmt: skip
    (tmp_path / "p.c").write_text("\n".join(lines))
    assert instrument(tmp_path / "p.c", "-o", tmp_path / "out", "--list") == 0
    assert re.findall(r"line (\d+): under a #pragma", capsys.readouterr().out) == ["5", "9"]
    assert "barograph_value(1, s)" in (tmp_path / "out" / "p.c").read_text()


def test_a_reduced_set_of_features_can_be_probed_alone(program, tmp_path, capsys):
    assert instrument(program, "-o", tmp_path / "full") == 0
    binary, folders = compiled(tmp_path / "full" / "program.c"), []
    for size in range(3, 33, 2):
        folders.append(tmp_path / "runs" / str(size))
        folders[-1].mkdir(parents=True)
        assert run(binary, size, BAROGRAPH_FEATURES=str(folders[-1])).returncode == 0
    table, keep = tmp_path / "runs.csv", tmp_path / "keep.json"
    assert main(["features", "table", *map(str, folders), "-o", str(table)]) == 0
    assert main(["features", "reduce", str(table), "-o", str(keep), "--time-share", "1", "--importance", "0.5"]) == 0
    kept = json.loads(keep.read_text())["features"]
    assert 0 < len(kept) < 10
    assert instrument(program, "-o", tmp_path / "reduced", "--keep", keep) == 0
    (tmp_path / "again").mkdir()
    run(compiled(tmp_path / "reduced" / "program.c"), "5", BAROGRAPH_FEATURES=str(tmp_path / "again"))
    (path,) = (tmp_path / "again").glob("*.features")
    assert set(kept) <= set(read_side_file(path).features)
    assert "15 runs" in capsys.readouterr().out


def test_arguments_come_from_a_compilation_database(tmp_path, capsys):
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "size.h").write_text("#define SIZE 4\n")
    source = tmp_path / "a.c"
    source.write_text('#include "size.h"\nint main(void) { int n = SIZE + MORE; return n - 5; }\n')
    command = "cc -Iinc -DMORE=1 -O2 -c a.c -o a.o"
    database = [{"directory": str(tmp_path), "file": "a.c", "command": command}]
    (tmp_path / "compile_commands.json").write_text(json.dumps(database))
    assert instrument(source, "-o", tmp_path / "out") == 65
    assert "'size.h' file not found; expected a source that parses" in capsys.readouterr().err
    assert instrument(source, "-o", tmp_path / "out", "--compile-commands", tmp_path) == 0
    assert run(compiled(tmp_path / "out" / "a.c", f"-I{tmp_path / 'inc'}", "-DMORE=1")).returncode == 0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.c",
            "int main(void) { return x; }",
            "a.c:1: use of undeclared identifier 'x'; expected a source that parses",
        ),
        ("a.c", '#include "gone.h"\n', "a.c:1: 'gone.h' file not found"),
        (
            "a.c",
            '#include "barograph_features.h"\n',
            "includes barograph_features.h already, expected a source without probes",
        ),
        ("a.f90", "program a\nend\n", "ending '.f90', expected C or C++"),
    ],
)
def test_an_unreadable_source_is_named_and_nothing_is_written(tmp_path, capsys, name, text, message):
    (tmp_path / "good.c").write_text("int main(void) { int n = 1; return n - 1; }\n")
    (tmp_path / name).write_text(text)
    assert instrument(tmp_path / "good.c", tmp_path / name, "-o", tmp_path / "out") == 65
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "begins with b'', expected b'BAROFEAT'"),
        (b"BAROFEAT" + bytes(8), "has 16 bytes, expected at least 56"),
        (b"BAROFEAT" + (9).to_bytes(4, "little") + bytes(52), "has version 9, expected 1"),
        (b"BAROFEAT" + (1).to_bytes(4, "little") + (2**31).to_bytes(4, "little") + bytes(48), "too few for 2147483648"),
    ],
)
def test_an_invalid_side_file_is_refused(tmp_path, data, message):
    (tmp_path / "x.features").write_bytes(data)
    with pytest.raises(BadSideFile, match=message):
        read_side_file(tmp_path / "x.features")


def test_a_run_without_side_files_is_an_error(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["features", "table", str(tmp_path / "empty"), "-o", str(tmp_path / "t.csv")]) == 65
    assert "holds no side file" in capsys.readouterr().err
    assert not (tmp_path / "t.csv").exists()


MESSAGES = (PROGRAMS / "messages.c").read_text()


def test_features_of_messages_are_bytes_and_ranks(tmp_path):
    mpi = mpis.find("mpich")
    (tmp_path / "m.c").write_text(MESSAGES)
    assert instrument(tmp_path / "m.c", "-o", tmp_path / "out", "--cc", mpi.mpicc) == 0
    (tmp_path / "run").mkdir()
    plain = mpi.run(2, [mpi.compile(tmp_path / "m.c", tmp_path / "plain")])
    binary = mpi.compile(tmp_path / "out" / "m.c", tmp_path / "out" / "m")
    probed = mpi.run(2, [binary], {"BAROGRAPH_FEATURES": str(tmp_path / "run")})
    assert sorted(probed.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    assert plain.stdout.count("\n") == 2
    files = [read_side_file(path) for path in (tmp_path / "run").glob("*.features")]
    assert len(files) == 2
    found = {name.split(":", 3)[3]: feature.value for name, feature in merge(files).items()}
    assert (found["bytes:MPI_Bcast"], found["ranks:MPI_Bcast"]) == (4, 2)
    assert (found["bytes:MPI_Allreduce"], found["ranks:MPI_Allreduce"]) == (24, 2)
    assert len([name for name in files[0].features if "MPI_Bcast" in name]) == 2  # the call that doubles m has no probe


@pytest.mark.parametrize("where", ["a full disk", "a limit of file sizes"])
def test_where_there_is_no_room_for_its_features_an_instrumented_program_runs_as_without(program, tmp_path, where):
    assert instrument(program, "-o", tmp_path / "out") == 0
    after, folder = compiled(tmp_path / "out" / "program.c"), tmp_path / "features"
    folder.mkdir()
    wanted = run(compiled(program), "5")
    shell = ["bash", "-c", 'ulimit -f 0; exec "$0" "$@"']
    if where == "a full disk":
        if os.getuid() != 0 or not shutil.which("unshare"):
            pytest.skip("a disk of its own needs root and unshare")
        fill = f"mount -t tmpfs -o size=4k none {folder} && head -c 4096 /dev/zero > {folder}/filler"
        shell = ["unshare", "--mount", "bash", "-c", f'{fill}; exec "$0" "$@"']
    done = run(*shell, after, "5", BAROGRAPH_FEATURES=str(folder))
    assert (done.returncode, done.stdout) == (wanted.returncode, wanted.stdout), done.stderr
    assert not list(folder.glob("*.features"))
