"""A ring that flaps and answers that are lost, at random: a replaying session beside a plain one at
a server that nothing happens to, and every answer of both compared."""

import random
import threading
import time

import pytest

import attnd

from test_replaying import LAYERS
from test_session import rows

SECONDS = 4
LOST = ("Prefill", "Steps", "CreateSession", "ForkSession", "RewindSession", "GetSession")


class Pair:
    """A session behind the balancer, and a plain one at a server of it."""

    def __init__(self, client, direct):
        self.client, self.direct = client, direct
        self.one, self.plain = client.create_replaying_session(), direct.create_session()
        self.begin()

    def begin(self):
        self._both(lambda one: [one.prefill(layer, rows(20, layer)) for layer in LAYERS])
        self.lengths = dict.fromkeys(LAYERS, 20)

    def _both(self, act):
        return act(self.one), act(self.plain)

    def step(self, layer, count, back, seed):
        position = self.lengths[layer] - back
        self.lengths[layer] = position + count
        options = dict(position=position, rewind=back > 0)
        x = rows(count, seed)
        ours, plain = self._both(lambda one: one.prefill(layer, x, **options).output.tobytes())
        return ours == plain

    def pipeline(self, random):
        """Steps in flight, of which some cut the one before, and calls in between."""
        right, steps = [], []
        with self.client.steps(resume=True) as stream:
            for _ in range(8):
                what = random.choice(["submit"] * 6 + ["step", "rewind", "fork"])
                if what != "submit":
                    right.append(self.call(what, random))
                    continue
                layer, back = random.choice(LAYERS), random.randrange(3)
                x, position = rows(2, random.randrange(1 << 20)), self.lengths[layer] - back
                self.lengths[layer] = position + 2
                options = dict(position=position, rewind=back > 0)
                plain = self.plain.prefill(layer, x, **options).output.tobytes()
                steps.append((stream.submit_prefill(self.one, layer, x, **options), plain))
            right += [step.result(60).output.tobytes() == plain for step, plain in steps]
        return all(right)

    def rewind(self, position):
        self._both(lambda one: one.rewind(position))
        self.lengths = {layer: min(length, position) for layer, length in self.lengths.items()}
        return True

    def fork(self):
        old = self.one, self.plain
        self.one, self.plain = self._both(lambda one: one.fork())
        for one in old:
            one.close()
        return True

    def call(self, what, random):
        if what == "step":
            count, back = random.randrange(1, 4), random.randrange(4)
            return self.step(random.choice(LAYERS), count, back, random.randrange(1 << 20))
        if what == "rewind":
            return self.rewind(max(self.lengths.values()) - random.randrange(3))
        return self.fork()

    def act(self, random):
        if max(self.lengths.values()) > 400:
            self.rewind(0)
            self.begin()
        what = random.choice(["step", "step", "pipeline", "rewind", "fork"])
        return self.pipeline(random) if what == "pipeline" else self.call(what, random)


@pytest.mark.parametrize("lost", [0.0, 0.03])
def test_flaps_and_lost_answers_change_no_bit(fleet, lost):
    seed = random.randrange(1 << 20)
    print("seed", seed)  # of the choices; the times are not to be had again
    dice, end = random.Random(seed), time.monotonic() + SECONDS
    fleet.lose = lambda method, server: method in LOST and random.random() < lost

    def flap():
        while time.monotonic() < end:
            server = random.choice(fleet.servers)
            fleet.put_out(server)
            time.sleep(random.uniform(0.05, 0.6))
            fleet.take_back(server)
            time.sleep(random.uniform(0.05, 0.6))

    flapping = threading.Thread(target=flap)
    flapping.start()
    address = fleet.servers[0].address
    with attnd.Client(fleet.address, timeout=30, arrival_wait=0.1) as client, attnd.Client(
        address
    ) as direct:
        client.stats()
        pair, count = Pair(client, direct), 0
        while time.monotonic() < end:
            assert pair.act(dice), f"another answer in act {count}"
            count += 1
    flapping.join()
    assert count > 5
