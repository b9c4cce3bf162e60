"""A link whose first bytes take long: one connection, which comes about."""

import contextlib
import socket
import threading
import time

import attnd

DELAY = 0.7  # seconds before the server's first word


class SlowLink:
    """Forwards a free port to `target`, each connection's first bytes late."""

    def __init__(self, target):
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        time.sleep(DELAY)
        with contextlib.suppress(OSError):
            far = socket.create_connection(self._target)
            threading.Thread(target=self._pump, args=(near, far), daemon=True).start()
            self._pump(far, near)

    @staticmethod
    def _pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def test_a_slow_connection_comes_about_at_the_first_try(servers):
    link = SlowLink(servers("odd").address)
    try:
        with attnd.Client(link.address, timeout=20) as client:
            assert client.model().num_layers == 4
        assert link.connections == 1
    finally:
        link.close()
