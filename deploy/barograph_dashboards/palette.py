"""Colours that people with any colour vision tell apart (Okabe and Ito 2008), and what they stand for."""

from __future__ import annotations

from typing import Final

BLUE: Final = "#0072B2"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
ORANGE: Final = "#E69F00"
RED: Final = "#D55E00"
PINK: Final = "#CC79A7"
GREY: Final = "#8A8A8A"

GOOD: Final = GREEN
BAD: Final = RED
STATES: Final = {"healthy": GREEN, "slow": RED, "stalled": PINK, "fast": SKY, "unknown": GREY}
