"""What is asked of a Prometheus in place of an expression."""

import pytest

from .expressions import selectors, without_comparison


@pytest.mark.parametrize(
    "text, found",
    [
        ('up{job=~".*attnd.*"} == 0', ['up{job=~".*attnd.*"}']),
        ("sum by (job, le) (rate(a_bucket[5m])) / on (job) group_left () b", ["a_bucket", "b"]),
        ('a and on (job, instance) c == 1 or a{x="}"} offset 5m', ["a", "c", 'a{x="}"}']),
        ("time() - level:a:rate5m", ["level:a:rate5m"]),
        ("a / a", ["a"]),
        ("histogram_quantile(0.99, sum by (le) (rate(a_bucket[1h])))", ["a_bucket"]),
    ],
)
def test_selectors_are_series_and_nothing_else(text, found):
    assert selectors(text) == found


@pytest.mark.parametrize(
    "text, left",
    [
        ('up{job=~".*attnd.*"} == 0', 'up {job=~".*attnd.*"}'),
        ("a / b > 0.8", "a / b"),
        ("a and on (job) b == 1", "a and on ( job ) b"),
        ('absent(up{job="a b"})', '( up {job="a b"} )'),
        ("a > b", "a > b"),
        ("increase(a[15m]) >= 1e3", "increase ( a [15m] )"),
    ],
)
def test_what_is_left_without_the_comparison(text, left):
    assert without_comparison(text) == left


@pytest.mark.parametrize("text", ['{job="attnd"}', "a ? b"])
def test_what_is_not_understood_is_said(text):
    with pytest.raises(ValueError):
        selectors(text)
