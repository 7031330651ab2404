"""A server between a client and S3 that misbehaves as it is told: what goes through is not altered."""

import socket
import threading
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

_BLOCK = 64 * 1024
_FAILED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """Tell it what to do by `set`; connections that were open are closed, so it holds for every request."""

    def __init__(self, target):
        self._target = urlsplit(target).hostname, urlsplit(target).port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        #: So many requests are answered with 500, or cut off in the middle of what they send.
        self.failing = 0
        self.cutting = 0
        #: A request that is cut has sent so many bytes.
        self.cut_after = 1_000_000
        self.delay_s = 0.0
        #: Nobody is there.
        self.gone = False
        self.refused = 0
        self._open = set()
        threading.Thread(target=self._serve, daemon=True).start()

    def set(self, **faults):
        vars(self).update(faults)
        _end(*list(self._open))

    def close(self):
        self._listening.close()

    def _serve(self):
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def _handle(self, client):
        self._open.add(client)
        with client:
            begin = b"" if self.gone else client.recv(_BLOCK)
            if self.gone or not begin:
                self.refused += self.gone
                return
            time.sleep(self.delay_s)
            if self.failing > 0:
                self.failing -= 1
                self.refused += 1
                client.sendall(_FAILED)
                return
            left = None
            if self.cutting > 0:
                self.cutting -= 1
                left = self.cut_after
            with socket.create_connection(self._target) as server:
                self._forward(client, server, begin, left)
            self._open.discard(client)

    def _forward(self, client, server, begin, left):
        """Both ways, until one side ends or, with `left`, so many bytes were sent."""
        back = threading.Thread(target=_copy, args=(server, client), daemon=True)
        back.start()
        data = begin
        while data:
            if left is not None and (left := left - len(data)) < 0:
                self.refused += 1
                _end(server, client)
                break
            server.sendall(data)
            try:
                data = client.recv(_BLOCK)
            except OSError:
                break
            if self.gone:
                self.refused += 1
                break
        _end(server, client)
        back.join()


def _copy(source, target):
    try:
        while data := source.recv(_BLOCK):
            target.sendall(data)
    except OSError:
        pass
    _end(target)


def _end(*sockets):
    for each in sockets:
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


@contextmanager
def proxy(target):
    running = Proxy(target)
    try:
        yield running
    finally:
        running.close()
