"""Rings that flap, answers that are lost, sessions that move, steps that fail, at random: replaying
sessions beside plain ones at a server that nothing happens to, and every answer of both compared."""

import random
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable

import grpc
import numpy as np
import pytest

import attnd
from attnd._proto import attnd_pb2 as pb

from test_replaying import LAYERS
from test_session import rows

SECONDS = 4
LOST = ("Prefill", "Decode", "Steps", "CreateSession", "ForkSession", "RewindSession", "GetSession")
FULL = 380  # tokens; the model ends at 512


@dataclass
class Act:
    """What was done with a session, and what the plain one does if it did not fail."""

    text: str
    answer: Callable[[], Any]  # bytes, or the error
    plain: Callable[[], Any]


class Pair:
    """A session behind the balancer, and a plain one at a server of it."""

    def __init__(self, client, direct):
        self.one, self.plain = client.create_replaying_session(), direct.create_session()
        self.lengths = dict.fromkeys(LAYERS, 0)  # if nothing that is on its way fails

    def sync(self):
        self.lengths = dict(enumerate(self.plain.info().layer_lengths))
        assert self.one.lengths == tuple(self.lengths.values())

    def close(self):
        self.one.close()
        self.plain.close()


def tried(act):
    try:
        return act()
    except attnd.AttndError as error:
        return error


class Player:
    """Acts on three sessions, in rounds that end with all of them at rest."""

    def __init__(self, client, direct, dice, failing):
        self.client, self.direct, self.dice, self.failing = client, direct, dice, failing
        self.pairs = [Pair(client, direct) for _ in range(3)]
        self.log, self.failed, self.disturbed = [], 0, 0

    def round(self):
        streams = [self.client.steps(resume=True) for _ in range(self.dice.choice([1, 1, 2]))]
        acts = []
        for _ in range(self.dice.randrange(1, 12)):
            acts += self.act(self.dice.choice(streams))
        for stream in streams:
            stream.close()
        for act in acts:
            self.check(act)
        for at, pair in enumerate(self.pairs):
            pair.sync()
            if max(pair.lengths.values()) > FULL:
                pair.close()
                self.pairs[at] = Pair(self.client, self.direct)

    def check(self, act):
        answer = act.answer()
        self.log.append(f"{act.text}: {answer if isinstance(answer, Exception) else 'ok'}")
        if isinstance(answer, Exception):
            assert self.failing, self.log[-20:]
            self.failed += 1
        else:
            assert tried(act.plain) == answer, self.log[-20:]

    def act(self, stream):
        kinds = ["step"] * 10 + ["batch"] * 4 + ["call"] * 2 + ["calls", "rewind", "fork", "info"]
        kinds += ["cancel"] * 2 * self.failing
        return getattr(self, self.dice.choice(kinds))(stream)

    def where(self, pair, layer, count):
        """Of a step's rows; the options that it needs."""
        position = max(0, pair.lengths[layer] - self.dice.choice([0, 0, 0, 1, 2, 3]))
        rewind = position < pair.lengths[layer] or self.dice.random() < 0.1
        pair.lengths[layer] = position + count
        return dict(position=position, rewind=rewind)

    def timeout(self):
        return self.dice.choice([None] * 12 + [0.001, 0.01, 0.05]) if self.failing else None

    def rows(self, count):
        refused = self.failing and self.dice.random() < 0.06
        x = rows(count, self.dice.randrange(1 << 20))
        return np.full_like(x, np.nan) if refused else x

    # ---------------------------------------------------------------- acts

    def step(self, stream):
        return self.prefill(lambda one, *args, **options: stream.submit_prefill(one, *args, **options))

    def call(self, _):
        return self.prefill(lambda one, *args, **options: one.prefill(*args, **options))

    def prefill(self, send):
        pair, layer = self.dice.choice(self.pairs), self.dice.choice(LAYERS)
        x = self.rows(self.dice.randrange(1, 4))
        where, timeout, plain = self.where(pair, layer, len(x)), self.timeout(), pair.plain
        sent = tried(lambda: send(pair.one, layer, x, timeout=timeout, **where))
        self.learn([pair], layer, sent)

        def answer():
            result = settled(sent)
            return result if isinstance(result, Exception) else result.output.tobytes()

        text = f"{self.pairs.index(pair)}: layer {layer}, {len(x)} rows, {where}, {timeout}"
        return [Act(text, answer, lambda: plain.prefill(layer, x, **where).output.tobytes())]

    def batch(self, stream):
        return self.decode(lambda *args, **options: stream.submit_decode(*args, **options))

    def calls(self, _):
        return self.decode(lambda *args, **options: self.client.decode(*args, **options))

    def decode(self, send):
        pairs = self.dice.sample(self.pairs, self.dice.randrange(1, 4))
        layer, timeout = self.dice.choice(LAYERS), self.timeout()
        places = [self.where(pair, layer, 1) for pair in pairs]
        x = np.concatenate([self.rows(1) for _ in pairs])
        steps = [attnd.SequenceStep(pair.one, 1, **at) for pair, at in zip(pairs, places)]
        sent = tried(lambda: send(layer, steps, x, timeout=timeout))
        self.learn(pairs, layer, sent)

        def act(i, pair, where):
            plain, row = pair.plain, x[i : i + 1]

            def answer():
                result = settled(sent)
                if isinstance(result, Exception):
                    return result
                return result.results[i].error or result.results[i].output.tobytes()

            text = f"{self.pairs.index(pair)}: layer {layer}, decode of {len(pairs)}, {where}, {timeout}"
            return Act(text, answer, lambda: plain.decode(layer, row, **where).output.tobytes())

        return [act(i, *both) for i, both in enumerate(zip(pairs, places))]

    def learn(self, pairs, layer, sent):
        """After a call the lengths are known."""
        if not isinstance(sent, attnd.StepFuture):
            for pair in pairs:
                pair.lengths[layer] = pair.one.lengths[layer]

    def rewind(self, _):
        pair = self.dice.choice(self.pairs)
        position = max(0, max(pair.lengths.values()) - self.dice.randrange(3))
        timeout, plain = self.timeout(), pair.plain
        answer = tried(lambda: pair.one.rewind(position, timeout=timeout) and b"")
        if answer == b"":
            pair.lengths = {layer: min(n, position) for layer, n in pair.lengths.items()}
        text = f"{self.pairs.index(pair)}: rewind to {position}, {timeout}"
        return [Act(text, lambda: answer, lambda: plain.rewind(position) and b"")]

    def fork(self, _):
        """The pair goes on with the copy."""
        pair = self.dice.choice(self.pairs)
        old, made = pair.one, tried(lambda: pair.one.fork(timeout=self.timeout()))
        answer = made if isinstance(made, Exception) else b""
        if answer == b"":
            pair.one = made
            old.close()
        return [Act(f"{self.pairs.index(pair)}: fork", lambda: answer, lambda: b"")]

    def info(self, _):
        pair = self.dice.choice(self.pairs)
        answer = tried(lambda: pair.one.info() and b"")
        return [Act(f"{self.pairs.index(pair)}: info", lambda: answer, lambda: b"")]

    def cancel(self, stream):
        stream.cancel(self.dice.randrange(1, 8))
        return []


def settled(sent):
    return tried(lambda: sent.result(120)) if isinstance(sent, attnd.StepFuture) else sent


def flap(fleet, player, end):
    while time.monotonic() < end:
        server = random.choice(fleet.servers)
        fleet.put_out(server)
        time.sleep(random.uniform(0.05, 0.6))
        fleet.take_back(server)
        player.disturbed += 1
        time.sleep(random.uniform(0.05, 0.6))


def move(fleet, player, end):
    """Begins moves of sessions, and gives them up."""
    server = fleet.server_of(player.client.affinity_key)
    with attnd.Client(server.address) as direct:
        while time.monotonic() < end:
            time.sleep(random.uniform(0.01, 0.1))
            session_id = random.choice(player.pairs).one.session_id
            request = pb.ExportSessionRequest(session_id=session_id, move=True)
            try:
                for _ in direct._stubs.sessions.ExportSession(request):
                    pass
                time.sleep(random.uniform(0, 0.05))
                direct.cancel_move(session_id)
                player.disturbed += 1
            except (grpc.RpcError, attnd.NotFound):
                continue  # it has been closed meanwhile


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("trouble, lost", [("flaps", 0.0), ("flaps", 0.03), ("moves", 0.0)])
def test_what_happens_at_random_changes_no_bit(fleet, trouble, lost, failing):
    seed = random.randrange(1 << 20)
    print("seed", seed)  # of the choices; the times are not to be had again
    end = time.monotonic() + SECONDS
    fleet.lose = lambda method, server: method in LOST and random.random() < lost
    one = attnd.Client(fleet.address, timeout=30, arrival_wait=0.1, move_wait=5)
    with one as client, attnd.Client(fleet.servers[0].address) as direct:
        client.stats()
        player, count = Player(client, direct, random.Random(seed), failing), 0
        act = flap if trouble == "flaps" else move
        disturbing = threading.Thread(target=act, args=(fleet, player, end))
        disturbing.start()
        while time.monotonic() < end or count < 6 or player.failed < failing:
            player.round()
            count += 1
        disturbing.join()
    assert player.disturbed > 2
