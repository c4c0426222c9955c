"""Tests of how caches share their budget."""

from kafka_pipeline.streams.stores.caches import CacheBudget


def test_a_cache_that_takes_less_than_it_claims_is_kept() -> None:
    budget = CacheBudget(100_000)
    cache = budget.cache()
    for _ in range(100):
        cache.add({b"%d" % number: b"x" * 100 for number in range(200)})
    assert len(cache.entries) == 200


def test_the_largest_cache_is_emptied_if_all_take_too_much() -> None:
    budget = CacheBudget(100_000)
    small, large = budget.cache(), budget.cache()
    small.add({b"%d" % number: b"" for number in range(50)})
    large.add({b"%d" % number: b"x" * 100 for number in range(1000)})
    assert (len(small.entries), len(large.entries)) == (50, 0)


def test_what_is_not_read_back_leaves_no_old_value() -> None:
    cache = CacheBudget().cache()
    cache.is_read_back = False
    cache.add_one(b"a", b"old")
    cache.add_one(b"b", None)
    cache.written({b"a": b"new", b"c": b"new"})
    assert cache.entries == {b"b": None}
