"""One of the many clients: random actions on sessions of its own until the time is over."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any, Awaitable, Callable, List, Optional, Sequence, Set, Tuple

import grpc

import attnd
from attnd._channel import Stubs, channel_options

from .calls import BOUND, Caller, ServiceTime, Stuck
from .history import Rules
from .ledger import Ledger
from .relay import Relay
from .sessions import Judge, SoakSession
from .streams import Family

MAX_SESSIONS = 4  # of one client


@dataclass
class Setting:
    """What all clients share."""

    address: str
    http: str
    rules: Rules
    families: Sequence[Family]
    ledger: Ledger
    idle_ttl: float
    evicts: bool
    missing: Set[str]  # methods that the server does not have
    ends: float  # time.monotonic() at which the clients stop
    service: ServiceTime = field(default_factory=ServiceTime)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.ends


Action = Callable[["SoakClient"], Awaitable[None]]


class SoakClient:
    """Use `run`. Everything that it does follows from the seed, but for the times of answers."""

    def __init__(self, setting: Setting, number: int, seed: int, relay: Optional[Relay]):
        self.setting = setting
        self.number = number
        self.choose = random.Random(seed * 1000 + number)
        self.relay = relay
        self.sessions: List[SoakSession] = []
        self.ledger = setting.ledger
        self.judge = Judge(setting.ledger, relayed=relay is not None)
        self._names = 0
        address = relay.address if relay else setting.address
        # Channels to one address would share a connection: each client is one of its own.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.client = attnd.AsyncClient(address, options=options)
        self.caller = Caller(self.client, relay, setting.service, setting.ledger, self.choose)
        channel = grpc.aio.insecure_channel(setting.address, channel_options(1 << 26, options))
        self._raw_channel: Any = channel
        self.raw = Stubs(channel)  # for what the package has no method for

    async def raw_channel(self) -> Any:
        """The channel below `raw`, connected: gRPC 1.51 sometimes fails a first connect."""
        await asyncio.wait_for(self._raw_channel.channel_ready(), BOUND)
        return self._raw_channel

    def name(self) -> str:
        self._names += 1
        return f"client-{self.number}.{self._names}-{self.choose.getrandbits(40):x}"

    def how(self) -> str:
        """What happens to the next call."""
        kinds = ("plain", "cancel", "deadline", "kill" if self.relay else "plain")
        return self.choose.choices(kinds, (55, 15, 15, 15))[0]

    def settled(self) -> List[SoakSession]:
        """The sessions of which nothing is unknown."""
        return [session for session in self.sessions if session.history.settled]

    async def run(self, actions: Sequence[Tuple[str, int, Action]]) -> None:
        """Acts until the time is over; a fault of an action itself is a finding."""
        weights = [weight for _, weight, _ in actions]
        while not self.setting.over:
            name, _, act = self.choose.choices(actions, weights)[0]
            try:
                await act(self)
            except Stuck:
                return
            except Exception as error:  # nothing may end a client unseen
                self.ledger.find("failed action", f"client {self.number}, {name}: {error!r}")
            self.sessions = [session for session in self.sessions if not session.gone]

    async def backoff(self, attempt: int = 0) -> None:
        await asyncio.sleep(self.choose.uniform(0, 0.02 * (attempt + 1)))

    async def close(self) -> None:
        await self.client.close()
        await self._raw_channel.close()
        if self.relay is not None:
            await self.relay.close()
