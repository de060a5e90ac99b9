"""DuckDB's extensions as files of installed packages: nothing is downloaded, and DuckDB checks their signatures."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import duckdb


class LakeError(Exception):
    """The lake cannot be used. The text names it and what was expected."""


def extension(name: str) -> Path:
    """The file of an extension for the DuckDB that is imported. Raises LakeError."""
    package = f"duckdb_extension_{name}"
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise LakeError(f"the lake needs the package {package.replace('_', '-')}, expected barograph[lake] installed")
    folder = Path(found.submodule_search_locations[0]) / "extensions"
    file = folder / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not file.exists():
        has = ", ".join(sorted(path.name.removeprefix("v") for path in folder.glob("v*"))) or "none"
        raise LakeError(
            f"DuckDB is of version {duckdb.__version__}, the package {package.replace('_', '-')} is for {has}:"
            " expected those that barograph[lake] names together"
        )
    return file
