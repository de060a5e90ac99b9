"""Objects whose state a snapshot keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class Stateful:
    """An object whose state is in the attributes named in STATE."""

    STATE: ClassVar[tuple[str, ...]]

    def state(self) -> dict[str, Any]:
        """The whole state, by reference: for `restore`."""
        return {name: getattr(self, name) for name in self.STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the state by what `state` returned. The constructor's arguments must be the same."""
        for name in self.STATE:
            setattr(self, name, state[name])
