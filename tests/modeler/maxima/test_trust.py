import numpy as np
import pytest

from barograph_modeler.maxima.distribution import Gevs
from barograph_modeler.maxima.trust import classify, judge, judge_all


def drawn(k, n, seed):
    return Gevs(np.array([k]), np.array([10.0]), np.array([2.0])).draw(n, np.random.default_rng(seed))[0]


@pytest.mark.parametrize(
    ("k", "error", "name"),
    [(-0.3, 0.1, "frechet"), (0.3, 0.1, "weibull"), (-0.3, 0.2, "gumbel"), (0.1, 0.1, "gumbel"), (0.0, 0.0, "gumbel")],
)
def test_a_type_is_named_where_the_interval_of_the_shape_leaves_0_out(k, error, name):
    shape = classify(k, error)
    assert shape.type_name == name
    assert (shape.lower, shape.upper) == pytest.approx((k - 1.959964 * error, k + 1.959964 * error))


@pytest.mark.parametrize(("k", "name"), [(-0.2, "frechet"), (0.2, "weibull")])
def test_large_samples_of_a_gev_are_trusted_and_typed(k, name):
    verdicts = [judge(drawn(k, 1000, seed), seed=seed) for seed in range(20)]
    assert [v.pwm_shape.type_name for v in verdicts] == [name] * 20
    assert sum(v.trusted for v in verdicts) >= 14


def test_gumbel_samples_are_named_so_19_times_in_20_and_trusted():
    verdicts = [judge(drawn(0.0, 200, seed), seed=seed) for seed in range(60)]
    assert sum(v.pwm_shape.type_name == "gumbel" for v in verdicts) >= 52
    assert sum(v.trusted for v in verdicts) >= 57


@pytest.mark.parametrize("n", [300, 1000])
def test_mixtures_and_outliers_are_not_trusted(n):
    rng = np.random.default_rng(n)
    noise = rng.normal(0, 0.3, n)
    bimodal = np.where(rng.random(n) < 0.18, 13, 10) + noise
    outliers = 10 + noise
    outliers[:: n // 5] = 100
    for x in (bimodal, outliers):
        verdict = judge(x, seed=1)
        assert not verdict.trusted
        assert verdict.reason.startswith(("shapes", "PWM says", "shape "))


def test_one_outlier_of_a_million_times_the_spread_is_not_trusted_though_the_errors_allow_everything():
    verdict = judge([*drawn(0.1, 29, 1), 2e6], seed=1)
    assert not verdict.trusted
    assert verdict.reason == "shape -0.950 (PWM) is at the end of its range"


def test_a_constant_sample_has_no_shape_to_trust():
    verdict = judge([2.0] * 50, seed=1)
    assert (verdict.trusted, verdict.reason) == (False, "all values are equal")
    assert verdict.pwm == verdict.mom


def test_same_seed_same_verdict_and_bad_arguments_are_refused():
    x = drawn(-0.1, 100, 2)
    assert judge(x, seed=3) == judge(x[::-1], seed=3)
    with pytest.raises(ValueError, match=r"^replicas are 1, expected at least 2$"):
        judge(x, seed=1, replicas=1)
    with pytest.raises(ValueError, match=r"^standard error is nan, expected a finite number of at least 0$"):
        classify(0.1, float("nan"))
    with pytest.raises(ValueError, match=r"^level is 95, expected a number between 0 and 1, both excluded$"):
        classify(0.1, 0.1, 95)


def test_samples_that_are_judged_together_have_the_verdicts_they_have_alone_to_the_last_digit():
    samples = np.random.default_rng(1).lognormal(0, 0.05, (40, 64))
    samples[3], samples[4, :60] = 1.0, 1.0
    samples[5] *= 1e-9
    samples[6] += 1e6
    together = judge_all(samples, seed=3, replicas=20)
    for sample, found in zip(samples, together, strict=True):
        alone = judge(sample, seed=3, replicas=20)
        assert found == alone
        for name in ("shape", "location", "scale"):
            assert (getattr(found.replicas, name) == getattr(alone.replicas, name)).all()
