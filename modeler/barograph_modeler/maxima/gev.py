"""The generalized extreme value distribution and its fit: the names that most callers need."""

from barograph_modeler.maxima.distribution import GUMBEL_SHAPE, Gev, Gevs
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES, SHAPE_RANGE, fit_pwm, fit_pwms
from barograph_modeler.maxima.sample import Floats, check_sample

__all__ = [
    "GUMBEL_SHAPE",
    "MINIMUM_SAMPLES",
    "SHAPE_RANGE",
    "Floats",
    "Gev",
    "Gevs",
    "check_sample",
    "fit_pwm",
    "fit_pwms",
]
