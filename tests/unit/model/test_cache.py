"""What is remembered of a database: never more than so much, the least used is dropped first, and uses are counted."""

from __future__ import annotations

from perdure.model.cache import Cache, CacheStats


def test_uses_are_counted_where_they_are_made() -> None:
    cache = Cache(2)
    assert cache.stats() == CacheStats(most=2)
    assert cache.stats().rate is None
    assert cache.find("a") is None  # whether anybody asks the database then is not known
    cache.learn("a", 1)
    assert [cache.find("a") for _ in range(3)] == [1, 1, 1]
    assert cache.stats() == CacheStats(hits=3, misses=1, entries=1, most=2)
    assert cache.stats().rate == 0.75


def test_it_is_bounded_and_what_was_not_used_for_longest_goes_first() -> None:
    cache = Cache(2)
    for key in "abacad":
        if cache.find(key) is None:
            cache.learn(key, key)
    assert [cache.find(key) for key in "abcd"] == ["a", None, None, "d"]
    for number in range(1000):
        cache.learn(number, number)
    assert cache.stats().entries == 2


def test_what_is_not_there_is_asked_again_and_so_is_what_was_forgotten() -> None:
    cache = Cache(2)
    cache.learn("a", 1)
    cache.learn("a", None)  # it is gone
    assert cache.find("a") is None
    cache.learn("b", 1)
    cache.forget("b")
    cache.forget("c")
    assert cache.find("b") is None
    assert cache.stats() == CacheStats(misses=3, most=2)
