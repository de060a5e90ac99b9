"""No number of jobs of one user displaces, or hides, those of another."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from barograph_modeler.state.fair import FairJobs, fair_share, first_of_each


def test_jobs_beyond_the_limit_are_those_of_the_user_with_most_and_the_least_recently_used_of_them() -> None:
    jobs: FairJobs[int] = FairJobs(4)
    for number, (job, user) in enumerate([("long", "amara"), ("m1", "mallory"), ("m2", "mallory"), ("b", "boris")]):
        jobs.use(job, lambda number=number: number, user)
    jobs.use("m1", lambda: -1)
    for number in range(100):
        jobs.use(f"new{number}", lambda: -1, "mallory")
    assert list(jobs) == ["long", "b", "new98", "new99"]
    assert jobs.evicted == 100
    assert jobs["long"] == 0


def test_a_job_whose_user_becomes_known_counts_for_that_user() -> None:
    jobs: FairJobs[int] = FairJobs(3)
    jobs.use("a", int)
    jobs.use("a", int, "amara")
    jobs.use("b", int, "mallory")
    jobs.use("c", int, "mallory")
    jobs.use("d", int, "mallory")
    assert list(jobs) == ["a", "c", "d"]
    assert jobs.pop("a") == 0
    assert jobs.pop("a") is None
    assert "a" not in jobs


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers()), max_size=40), st.integers(0, 50))
def test_what_is_kept_is_the_first_of_each_up_to_an_equal_share(items: list[tuple[str, int]], limit: int) -> None:
    kept = first_of_each(((user, (user, value)) for user, value in items), limit)
    sizes, shares = Counter(user for user, _ in items), Counter(user for user, _ in kept)
    assert len(kept) == min(limit, len(items))
    for user in sizes:
        own = [item for item in items if item[0] == user]
        assert [item for item in kept if item[0] == user] == own[: shares[user]]
        # Whoever has less than asked for has at least as much as any other, but for a remainder.
        assert shares[user] == sizes[user] or shares[user] >= max(shares.values(), default=0) - 1
    assert fair_share(sizes, limit) == {user: shares[user] for user in sizes}
