"""The digest of exported sessions, against values of libxxhash 0.8.1."""

import pytest

from attnd import _xxh3

DATA = bytes(i * 7 % 251 for i in range(5000))
DIGESTS = [
    (17, "263f67af63088041735fe434ded90c3c"),
    (32, "a86b514658f976a5407920045a9a834c"),
    (33, "a943d80ce26ed2928b59b4dfba3c9de4"),
    (64, "d547448717805e49ab83f2ba7371c91f"),
    (65, "4545962d25065c6689fdc8cc6c5a9fbc"),
    (96, "1e7c5919a326305dea3425146d151833"),
    (97, "2c6cb8a421ba64c7e991df1fb06bddce"),
    (128, "381610c474b8adfb2dfb73305de1f91a"),
    (129, "4e05eed4427255d51f8b5092c9ba3be8"),
    (160, "c87cb8fb5248daf88230a5712a9e151d"),
    (240, "17ffe035d71c1ec8e6bf81617aad6c4a"),
    (241, "29bc1e9cffb6d79bc614c8c3575348c1"),
    (1024, "07fe8eadab1cf098f22ef3dc84ff47ea"),
    (1025, "c89d767cdacc7c7643f869a83769a435"),
    (4096, "dec463517b2529a15d9027c84d5f33f7"),
    (5000, "5ecbf80121973a82ce29a19460ee1bfc"),
]


@pytest.mark.parametrize("size, digest", DIGESTS)
def test_equals_the_library(size, digest):
    for part in (1, 63, 64, 1000, 1024, 5000):
        whole = _xxh3.NumpyXxh3()
        for start in range(0, size, part):
            whole.update(DATA[start : min(start + part, size)])
        assert whole.digest().hex() == digest, part


def test_new_takes_what_is_installed():
    digest = _xxh3.new()
    digest.update(DATA)
    assert digest.digest().hex() == DIGESTS[-1][1]
