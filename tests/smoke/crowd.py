# SPDX-License-Identifier: BSD-3-Clause
"""Thousands of streams on one thread: an engine that writes by a script, and HTTP clients that read everything.

Both ends identify a stream by the first token of its prompt, and keep count and digest of its content.
"""

import hashlib
import json
import select
import socket
import time

PAD = 'x' * 150


def event(number, n):
    return f'data: {{"stream":{number},"n":{n},"choices":[{{"index":0,"text":" token"}}],"pad":"{PAD}"}}\n\n'.encode()


def chunk(data):
    return b'%x\r\n%b\r\n' % (len(data), data)


class End:
    """A connection and the content of its stream so far."""

    def __init__(self, crowd, sock):
        self.crowd, self.sock, self.pending, self.reads, self.closed = crowd, sock, b'', True, False
        self.bytes, self.digest, self.data = 0, hashlib.sha256(), b''
        sock.setblocking(False)
        crowd.ends[sock.fileno()] = self
        crowd.poll.register(sock, select.EPOLLIN)

    def watch(self):
        self.crowd.poll.modify(self.sock, (select.EPOLLIN if self.reads else 0) | (select.EPOLLOUT if self.pending else 0))

    def content(self, data):
        self.bytes += len(data)
        self.digest.update(data)

    def send(self, data):
        self.pending += data
        self.flush()

    def flush(self):
        try:
            while self.pending:
                n = self.sock.send(self.pending)
                self.crowd.written += n
                self.pending = self.pending[n:]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self.watch()

    def ready(self, events):
        if events & select.EPOLLOUT:
            self.flush()
        if self.closed or not self.reads or not events & ~select.EPOLLOUT:
            return
        try:
            data = self.sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b''
        if data:
            self.data += data
            self.take()
        else:
            self.close()

    def close(self):
        if not self.closed:
            self.closed, self.pending = True, b''
            del self.crowd.ends[self.sock.fileno()]
            self.sock.close()


class Served(End):
    """The engine's end: a request, and the answer written so far."""

    def __init__(self, crowd, sock):
        super().__init__(crowd, sock)
        self.number, self.body = None, b''

    def take(self):
        head, end, body = self.data.partition(b'\r\n\r\n')
        if not end:
            return
        if head.startswith(b'GET'):
            self.data = body
            self.send(b'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
            return
        if self.crowd.reads_no_bodies and self.reads:
            self.reads = False  # bytes received so far stay
            self.crowd.unread.append(self)
            self.watch()
            return
        length = next(int(line.split(b':')[1]) for line in head.lower().split(b'\r\n') if line.startswith(b'content-length:'))
        if len(body) < length:
            return
        self.body, self.data = body[:length], body[length:]
        self.bytes, self.digest = 0, hashlib.sha256()  # the connection may have carried others
        self.number = json.loads(self.body)['prompt'][0]
        self.crowd.asked[self.number] = self

    def begin(self):
        self.send(b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n')

    def events(self, first, n):
        data = b''.join(event(self.number, i) for i in range(first, first + n))
        self.content(data)
        self.send(chunk(data))

    def finish(self):
        self.send(b'0\r\n\r\n')

    def whole(self, data):
        self.content(data)
        self.send(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b' % (len(data), data))


class Client(End):
    """One request of HTTP/1.1 to the gateway."""

    def __init__(self, crowd, port, number, more=b''):
        sock = socket.create_connection(('127.0.0.1', port))
        super().__init__(crowd, sock)
        self.number, self.status, self.left, self.chunked, self.over, self.words = number, 0, 0, False, False, b''
        # The agent adds nothing to a request for usage in each chunk.
        self.body = (b'{"model": "llama", "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}, '
                     b'"max_tokens": 100000, "prompt": [%d], "x": "%b"}' % (number, more))
        crowd.clients.append(self)
        self.send(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b'
                  % (len(self.body), self.body))

    def take(self):
        if self.status == 0:
            head, end, rest = self.data.partition(b'\r\n\r\n')
            if not end:
                return
            self.status, self.chunked, self.data = int(head.split()[1]), b'chunked' in head.lower(), rest
            if not self.chunked:
                self.left = next(int(line.split(b':')[1]) for line in head.lower().split(b'\r\n') if line.startswith(b'content-length:'))
        at = 0
        while not self.over:
            if self.left > 0:
                part = self.data[at:at + self.left]
                if not part:
                    break
                self.content(part)
                self.words = part[-300:]
                at, self.left = at + len(part), self.left - len(part)
                continue
            if not self.chunked:
                self.over = True
                break
            end = self.data.find(b'\r\n', at + 2 if self.data[at:at + 2] == b'\r\n' else at)
            if end < 0:
                break
            self.left = int(self.data[at:end], 16)
            at = end + 2
            self.over = self.left == 0
        self.data = self.data[at:]
        if self.over:
            self.close()


class Crowd:
    def __init__(self, port):
        self.poll, self.ends, self.clients, self.asked, self.unread = select.epoll(), {}, [], {}, []
        self.reads_no_bodies, self.written = False, 0
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(('127.0.0.1', port))
        self.listener.listen(4096)
        self.listener.setblocking(False)
        self.poll.register(self.listener, select.EPOLLIN)

    def turn(self, seconds=0.1):
        for fd, events in self.poll.poll(seconds):
            if fd == self.listener.fileno():
                while True:
                    try:
                        Served(self, self.listener.accept()[0])
                    except BlockingIOError:
                        break
            elif fd in self.ends:
                self.ends[fd].ready(events)

    def until(self, condition, seconds):
        """Drives both ends meanwhile. @return whether the condition became true."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            self.turn()
        return True

    def read_on(self):
        """The engine reads the bodies that it ignored so far."""
        self.reads_no_bodies = False
        for served in self.unread:
            if not served.closed:
                served.reads = True
                served.watch()
                served.take()
        self.unread.clear()

    def whole(self, clients):
        """The clients whose content differs from what was written for them: received, and written."""
        out = []
        for c in clients:
            s = self.asked.get(c.number)
            if s is None or not c.over or c.status != 200 or (c.bytes, c.digest.digest()) != (s.bytes, s.digest.digest()):
                out.append((c.number, c.status, c.over, c.bytes, s and s.bytes, c.words[-120:]))
        return out
