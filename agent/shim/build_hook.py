"""Hatchling build hook: compiles the shim into the package, and lays what operators need under share/."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# hatchling loads this file by its path, so build.py cannot simply be imported.
_SPEC = importlib.util.spec_from_file_location("barograph_shim_build", Path(__file__).with_name("build.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
shim = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(shim)

LIBRARY = "agent/barograph_agent/libbarograph.so"


class ShimBuildHook(BuildHookInterface[Any]):
    """Builds libbarograph.so and marks the wheel as one for this platform and any Python 3."""

    def dependencies(self) -> list[str]:
        """A compiler from a package where the machine has none."""
        return [] if shim.system_compiler([]) else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles in place: an editable install, which copies nothing, finds the library there too."""
        shim.build(Path(self.root) / LIBRARY)
        build_data["artifacts"].append(LIBRARY)  # version control ignores it, the wheel must not
        build_data["pure_python"] = False
        build_data["shared_data"].update(self._shared())
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")

    def _shared(self) -> dict[str, str]:
        """What is no Python: the folders beside the umbrella package, the rules, and what `make dist` has made."""
        root = Path(self.root)
        folders = [folder for folder in root.glob("deploy/*/") if not (folder / "__init__.py").exists()]
        shared = {str(folder): f"share/barograph/{folder.name}" for folder in [*folders, root / "alerts/rules"]}
        made = root / "build/share"
        return shared | {str(folder): f"share/{folder.name}" for folder in made.glob("*/")}
