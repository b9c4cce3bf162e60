"""The hash rings of Envoy and HAProxy, as both build them: which server a key goes to.

A ring is sorted points with their owners. Envoy (`ring_hash`): points of xxHash64("NAME_i") to each server, by default
ceil(1024 / n) of them; a key goes to the first point at or after its own xxHash64. HAProxy (`hash-type consistent`,
its default hash sdbm with avalanche): 16 points to a unit of weight, made of the server's id; a key goes to the nearest
point.
tests/deploy/test_real_balancers.py compares both with the real balancers.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import xxhash

HAPROXY_POINTS_PER_WEIGHT = 16
HAPROXY_IDS_APART = 4096  # between the points of two servers' ids, before they are hashed


@dataclasses.dataclass(frozen=True)
class Ring:
    points: np.ndarray  # sorted, unsigned
    owners: np.ndarray  # of each point: the server's index
    nearest: bool  # a key goes to the nearest point, not to the next one


def envoy_ring(names: list[str], each: int) -> Ring:
    """`names` are what Envoy hashes of a server: its name or its address, as configured; `each` their points."""
    points = envoy_hashes([f"{name}_{i}" for name in names for i in range(each)])
    return _sorted(points, np.repeat(np.arange(len(names)), each), nearest=False)


def haproxy_ring(ids: list[int], weight: int) -> Ring:
    """`ids` are the servers' ids: 1, 2, ... in the order of the configuration unless it says otherwise."""
    each = HAPROXY_POINTS_PER_WEIGHT * weight
    seeds = np.array([number * HAPROXY_IDS_APART + i for number in ids for i in range(each)], np.uint32)
    return _sorted(_avalanche(seeds), np.repeat(np.arange(len(ids)), each), nearest=True)


def envoy_hashes(keys: list[str]) -> np.ndarray:
    return np.array([xxhash.xxh64_intdigest(key.encode()) for key in keys], np.uint64)


def sdbm(keys: list[str]) -> np.ndarray:
    hashes = []
    for key in keys:
        value = 0
        for byte in key.encode():
            value = (byte + (value << 6) + (value << 16) - value) & 0xFFFFFFFF
        hashes.append(value)
    return np.array(hashes, np.uint32)


def haproxy_hashes(keys: list[str]) -> np.ndarray:
    return _avalanche(sdbm(keys))


def haproxy_map(servers: int, hashes: np.ndarray) -> np.ndarray:
    """HAProxy without `hash-type consistent`: a table of the servers, looked up by the sdbm hash modulo its length."""
    return (hashes % np.uint32(servers)).astype(np.int64)


def place(ring: Ring, hashes: np.ndarray) -> np.ndarray:
    """The server's index of each key."""
    after = np.searchsorted(ring.points, hashes) % len(ring.points)
    if not ring.nearest:
        return ring.owners[after]
    before = after - 1  # -1 is the last: the ring is closed
    # Unsigned differences wrap as the ring does.
    nearer_before = hashes - ring.points[before] <= ring.points[after] - hashes
    return np.where(nearer_before, ring.owners[before], ring.owners[after])


def _sorted(points: np.ndarray, owners: np.ndarray, nearest: bool) -> Ring:
    order = np.argsort(points, kind="stable")
    return Ring(points[order], owners[order], nearest)


def _avalanche(a: np.ndarray) -> np.ndarray:
    """Robert Jenkins' 32-bit integer hash in six shifts, then HAProxy's factor of 3/4 of the ring."""
    a = a.astype(np.uint32)
    a = (a + np.uint32(0x7ED55D16)) + (a << np.uint32(12))
    a = (a ^ np.uint32(0xC761C23C)) ^ (a >> np.uint32(19))
    a = (a + np.uint32(0x165667B1)) + (a << np.uint32(5))
    a = (a + np.uint32(0xD3A2646C)) ^ (a << np.uint32(9))
    a = (a + np.uint32(0xFD7046C5)) + (a << np.uint32(3))
    a = (a ^ np.uint32(0xB55A4F09)) ^ (a >> np.uint32(16))
    return a * np.uint32(3221225473)
