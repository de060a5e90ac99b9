"""Objects whose state a snapshot keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class Stateful:
    """Has its state in the attributes named in STATE."""

    STATE: ClassVar[tuple[str, ...]]

    def state(self) -> dict[str, Any]:
        """Everything learned and held, as it is now: not a copy. For `restore`."""
        return {name: getattr(self, name) for name in self.STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned, under the same arguments."""
        for name in self.STATE:
            setattr(self, name, state[name])
