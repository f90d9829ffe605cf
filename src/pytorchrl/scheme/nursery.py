"""A process that has imported everything and forks workers: a lost one is back in a moment.

It has one thread and no connection but that to its driver, so that a fork finds nothing half done. It leaves with the
driver, and its workers leave with it.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

# Not multiprocessing: it would import the user's main script again.
PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from pytorchrl.scheme.nursery import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
# Seconds that the first start may take: Python, torch and this library.
START = 300.0
# How often it looks whether its driver is still there.
TICK = 0.5


class Nursery:
    """The driver's side: starts workers and buries them. One serves all pools of a process, while there are any."""

    present: Nursery | None = None

    def __init__(self) -> None:
        self.users = 0
        self._begin()

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        words = [json.dumps(sys.path), str(theirs.fileno()), str(os.getpid())]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            env={"OMP_NUM_THREADS": "1", **os.environ},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # signals of the terminal are the driver's business
        )
        theirs.close()
        ours.settimeout(START)
        self.connection = ours

    @classmethod
    def enter(cls) -> Nursery:
        """The one of this process, made if there is none; to be left again."""
        if cls.present is None:
            cls.present = cls()
        cls.present.users += 1
        return cls.present

    def leave(self) -> None:
        """The last user that leaves ends it."""
        self.users -= 1
        if self.users == 0:
            self.connection.close()
            self.process.wait()
            if Nursery.present is self:
                Nursery.present = None

    def start(self, connection: socket.socket) -> int:
        """Fork a worker that serves the other end of ``connection``; its process id."""
        try:
            return self._start(connection)
        except OSError:  # it is gone, and its workers with it; another one takes its place
            self.connection.close()
            self.process.kill()
            self.process.wait()
            self._begin()
            return self._start(connection)

    def _start(self, connection: socket.socket) -> int:
        descriptor = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))]
        self.connection.sendmsg([b"start 0 0\n".ljust(32)], descriptor)
        return int(self._reply())

    def bury(self, pid: int, seconds: float) -> int | None:
        """Wait so long for a worker's end; its exit status, None if it goes on."""
        self.connection.sendall(f"bury {pid} {int(1000 * seconds)}\n".encode().ljust(32))
        status = int(self._reply())
        return None if status == sys.maxsize else status

    def _reply(self) -> bytes:
        reply = self.connection.recv(32)
        if not reply:
            raise ConnectionResetError("the process that starts workers is gone")
        return reply


def main(descriptor: int, driver: int) -> None:  # pragma: no cover  a process of its own, seen from outside by tests
    """Fork and bury workers until the driver says so, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from pytorchrl.agent.env.worker import die_with_parent
    from pytorchrl.scheme import host, workers

    die_with_parent()
    workers.warm_up()
    connection = socket.socket(fileno=descriptor)
    while os.getppid() == driver:
        if not select.select([connection], [], [], TICK)[0]:
            continue
        request, descriptors, _, _ = socket.recv_fds(connection, 32, 1)
        if not request:
            break
        what, number, milliseconds = request.split()
        if what == b"bury":
            reply = _bury(int(number), int(milliseconds) / 1000)
        else:
            reply = os.fork()
            if reply == 0:
                connection.close()
                os.setsid()
                status = 1
                try:
                    host.main(descriptors[0], os.getppid())
                    status = 0
                finally:
                    os._exit(status)
            os.close(descriptors[0])
        with suppress(BrokenPipeError):
            connection.sendall(str(reply).encode().ljust(32))
    os._exit(0)  # taking PyTorch down in good order takes a second


def _bury(pid: int, seconds: float) -> int:  # pragma: no cover  likewise
    end = time.monotonic() + seconds
    while True:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= end:
            return sys.maxsize
        time.sleep(0.005)
