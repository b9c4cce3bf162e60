"""A balancer as contract.md wants one: hashes attnd-session-key over the servers that are ready.

Calls pass as bytes, streams stay with the server on which they began, and a server that cannot be
reached ends them with UNAVAILABLE, without a reason: what Envoy and HAProxy do.
"""

import hashlib
import threading
import urllib.request
from concurrent import futures

import grpc

_HOP = ("user-agent", "grpc-accept-encoding", "accept-encoding", "grpc-encoding", "te")


def _same(data):
    return data


class Balancer(grpc.GenericRpcHandler):
    """Over ServerProcesses; listens at construction, `address` is "127.0.0.1:PORT"."""

    def __init__(self, servers, check_seconds=0.05):
        self._lock = threading.Lock()
        self._servers, self._channels = list(servers), {}
        self._ready = []
        self._out = []  # alive, but not for the balancer
        self.calls = []  # of each: its method and its key
        self.lose = lambda method, server: False  # asked when an answer has come: whether to lose it
        self._end = threading.Event()
        self._check()
        self._checker = threading.Thread(target=self._watch, args=(check_seconds,), daemon=True)
        self._checker.start()
        # A stream takes a thread.
        self._server = grpc.server(
            futures.ThreadPoolExecutor(300), options=[("grpc.max_receive_message_length", -1)]
        )
        self._server.add_generic_rpc_handlers([self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self):
        self._end.set()
        self._checker.join()
        self._server.stop(0).wait()
        for channel in self._channels.values():
            channel.close()

    def add(self, server):
        with self._lock:
            self._servers.append(server)

    def put_out(self, server):
        """Its keys go elsewhere, as where health checks do not reach a server that lives."""
        with self._lock:
            self._out.append(server)
        self._check()

    def take_back(self, server):
        with self._lock:
            self._out.remove(server)
        self._check()

    def server_of(self, key):
        """Where calls with this key go now; None: nowhere."""
        with self._lock:
            return max(
                self._ready,
                key=lambda one: hashlib.md5(f"{key} {one.address}".encode()).digest(),
                default=None,
            )

    def _is_ready(self, server):
        try:
            with urllib.request.urlopen(
                f"http://{server.ready['http']}/readyz", timeout=2
            ) as answer:
                return answer.status == 200
        except OSError:
            return False

    def _check(self):
        with self._lock:
            servers = [server for server in self._servers if server not in self._out]
        ready = [server for server in servers if self._is_ready(server)]
        with self._lock:
            self._ready = [server for server in ready if server not in self._out]

    def _watch(self, seconds):
        while not self._end.wait(seconds):
            self._check()

    def _channel(self, server):
        with self._lock:
            if server.address not in self._channels:
                options = [
                    ("grpc.max_receive_message_length", -1),
                    ("grpc.use_local_subchannel_pool", 1),
                ]
                self._channels[server.address] = grpc.insecure_channel(server.address, options)
            return self._channels[server.address]

    def service(self, details):
        """Every method, as a stream both ways: on the wire a unary call is one of one message."""
        metadata = details.invocation_metadata
        key = next((value for name, value in metadata if name == "attnd-session-key"), "")
        name = details.method.rsplit("/", 1)[-1]
        self.calls.append((name, key))

        def forward(requests, context):
            server = self.server_of(key)
            if server is None:
                context.abort(grpc.StatusCode.UNAVAILABLE, "no healthy upstream")
            passed = [(name, value) for name, value in metadata if name not in _HOP]
            method = self._channel(server).stream_stream(
                details.method, request_serializer=_same, response_deserializer=_same
            )
            left = context.time_remaining()
            left = None if left is None or left > 1e6 else left  # gRPC's word for none
            call = method(requests, metadata=passed, timeout=left)
            context.add_callback(call.cancel)
            try:
                context.send_initial_metadata(call.initial_metadata())
                for answer in call:
                    if self.lose(name, server):
                        context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
                    yield answer
                context.set_trailing_metadata(call.trailing_metadata())
            except grpc.RpcError as error:
                context.set_trailing_metadata(error.trailing_metadata() or ())
                context.abort(error.code(), error.details())

        return grpc.stream_stream_rpc_method_handler(forward, _same, _same)
