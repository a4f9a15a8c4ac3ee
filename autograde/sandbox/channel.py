"""Messages over a pipe to a process that may not answer, may not read, or may send half a message.

The standard library's Connection waits for the whole of a message whose first byte has come; a
hostile process sends a length and then nothing. Here every wait has an end. The format on the wire
is Connection's own, which the student's side uses.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

CHUNK = 1 << 20


def sender(descriptor: int) -> Callable[[bytes], None]:
    """What sends messages from a student's process. All that it needs is bound here: the names of
    `Connection` are the student's to change."""
    write, pack = os.write, struct.Struct("!i").pack

    def send(message: bytes) -> None:
        left = memoryview(pack(len(message)) + message)
        while left:
            left = left[write(descriptor, left) :]

    return send


class TooLongError(OSError):
    """A message is longer than what is read."""


class Channel:
    """One end of a pipe, with deadlines (of `time.monotonic`)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.descriptor = connection.fileno()
        os.set_blocking(self.descriptor, False)
        self.received = bytearray()
        """What has come and not been handed out: half a message is kept for the next try."""

    def send(self, message: bytes, deadline: float) -> None:
        """Send a message whole, or raise TimeoutError."""
        left = memoryview(struct.pack("!i", len(message)) + message)
        while left:
            self._wait(select.POLLOUT, deadline)
            left = left[os.write(self.descriptor, left[:CHUNK]) :]

    def receive(self, deadline: float, max_bytes: int) -> bytes:
        """The next message whole, or TimeoutError, EOFError, TooLongError."""
        (length,) = struct.unpack("!i", self._peek(4, deadline))
        if not 0 <= length <= max_bytes:
            raise TooLongError(f"a message of {length:,} bytes; at most {max_bytes:,} are read")
        message = bytes(self._peek(4 + length, deadline)[4:])
        del self.received[: 4 + length]
        return message

    @property
    def is_closed(self) -> bool:
        """Whether this end was closed."""
        return self.connection.closed

    def close(self) -> None:
        """Close this end."""
        self.connection.close()

    def _peek(self, count: int, deadline: float) -> bytes:
        while len(self.received) < count:
            self._wait(select.POLLIN, deadline)
            chunk = os.read(self.descriptor, CHUNK)
            if not chunk:
                raise EOFError("the other side closed the pipe")
            self.received += chunk
        return bytes(self.received[:count])

    def _wait(self, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(self.descriptor, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError("no answer in time")
