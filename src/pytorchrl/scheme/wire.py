"""Messages between processes of one machine: small ones through a socket, arrays through memory without a name.

The memory of a message is a file that only its two ends know, by descriptor: whatever dies, nothing is left behind.
"""

from __future__ import annotations

import array
import mmap
import os
import pickle
import socket
import struct
from typing import Any

from pytorchrl.agent.env import shared

# Arrays that take less in all are sent through the socket itself.
INLINE = 32 * 1024
ALIGNMENT = 64
# Of two parcels: bytes through the socket, bytes of memory.
HEADER = struct.Struct("<QQQQ")


class Parcel:
    """A value ready to be sent, any number of times."""

    def __init__(self, value: Any) -> None:
        found: list[pickle.PickleBuffer] = []
        body = pickle.dumps(value, 5, buffer_callback=found.append)
        buffers = [buffer.raw() for buffer in found]
        self.size = 0
        self.descriptor: int | None = None
        if sum(buffer.nbytes for buffer in buffers) <= INLINE:
            self.body = pickle.dumps(([], body if not buffers else pickle.dumps(value, 5)))
            return
        self.body = pickle.dumps(([buffer.nbytes for buffer in buffers], body))
        self.descriptor = shared.create()
        for buffer in buffers:
            written = 0
            while written < buffer.nbytes:
                written += os.pwrite(self.descriptor, buffer[written:], self.size + written)
            self.size += _aligned(buffer.nbytes)
        os.ftruncate(self.descriptor, self.size)

    def __del__(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def send(connection: socket.socket, message: Parcel, more: Parcel | None = None) -> None:
    """One message of one or two parcels."""
    parcels = [message] if more is None else [message, more]
    numbers = [number for parcel in parcels for number in (len(parcel.body), parcel.size)]
    descriptors = [parcel.descriptor for parcel in parcels if parcel.descriptor is not None]
    header = HEADER.pack(*[*numbers, 0, 0][:4])
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    connection.sendmsg([header], ancillary)
    for parcel in parcels:
        connection.sendall(parcel.body)


def receive(connection: socket.socket) -> tuple[Any, Received | None]:
    """(message, what came with it, unopened); ``EOFError`` if the other end is gone."""
    header, descriptors, _, _ = socket.recv_fds(connection, HEADER.size, 2)
    header += _exactly(connection, HEADER.size - len(header))
    first, size, second, more = HEADER.unpack(header)
    waiting = list(descriptors)
    message = Received(_exactly(connection, first), size, waiting.pop(0) if size else None)
    other = Received(_exactly(connection, second), more, waiting.pop(0) if more else None) if second else None
    return message.open(), other


class Received:
    """A parcel that has come."""

    def __init__(self, body: bytes, size: int, descriptor: int | None) -> None:
        self.body, self.size, self.descriptor = body, size, descriptor

    def open(self) -> Any:
        """The value; its arrays lie in the memory that came along, as a private copy that is made when written to."""
        lengths, body = pickle.loads(self.body)
        if self.descriptor is None:
            return pickle.loads(body)
        memory = mmap.mmap(self.descriptor, self.size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        self.close()
        buffers, place = [], 0
        for length in lengths:
            buffers.append(memoryview(memory)[place : place + length])
            place += _aligned(length)
        return pickle.loads(body, buffers=buffers)

    def close(self) -> None:
        """Let go of the memory."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
