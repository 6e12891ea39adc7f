"""Stands between an agent and its controller without the secret: forwards bytes until STATE, then
does WHAT.

usage: on_path.py STATE WHAT RESULT REGROUP --node-agent JOB NODE PARENT ENDPOINTS BUILD
  STATE   first (bytes of the handshake), hello (behind it), later (members train), regroup
          (one was killed),
          or tape: only writes down what goes up, which is foreign to the links of the next job
  WHAT    KIND.DIRECTION: replay, flip, record, long, foreign or stall; up (to the
          controller) or down
  RESULT  a file: "closed" if that ended the link at both ends within LIMIT_S, else "open"
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

LIMIT_S = 60.0
LATER_S = 3.0


class Between:
    """Both directions: 0 up, 1 down."""

    def __init__(self, agent: socket.socket, controller: socket.socket):
        self.ends = [(agent, controller), (controller, agent)]
        self.chunks = [0, 0]
        self.last = [b"", b""]

    def readable(self, seconds: float) -> list[int]:
        ready, _, _ = select.select([near for near, _ in self.ends], [], [], seconds)
        return [way for way, (near, _) in enumerate(self.ends) if near in ready]

    def pump(
        self, seconds: float, change: Callable[[int, bytes], bytes] = lambda _, chunk: chunk
    ) -> bool:
        """Passes on what comes in that time; False once an end is closed."""
        for way in self.readable(seconds):
            near, far = self.ends[way]
            chunk = near.recv(65536)
            if not chunk:
                return False
            self.chunks[way] += 1
            self.last[way] = chunk
            far.sendall(change(way, chunk))
        return True


def kill_a_member() -> None:
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text().strip() == "chaos_member":
                os.kill(int(path.parent.name), signal.SIGKILL)
                break


def come_to(state: str, between: Between) -> bool:
    began = time.monotonic()
    while True:
        up, down = between.chunks
        if (state == "first" and up >= 1) or (state == "hello" and up >= 2 and down >= 1):
            return True
        if state in ("later", "regroup") and time.monotonic() > began + LATER_S:
            if state == "regroup":
                kill_a_member()
            return True
        if not between.pump(0.05):
            return False


def tape(between: Between, path: Path) -> str:
    with path.open("wb") as file:
        while between.pump(
            0.1, lambda way, chunk: (file.write(chunk) if way == 0 else 0, chunk)[1]
        ):
            pass
    return "closed"


def bytes_of(kind: str, last: bytes, foreign: Path) -> bytes:
    """What is put between the bytes of the link; `foreign` has those of another job."""
    if kind == "record":
        return b"\x17\x03\x03\x00\x40" + os.urandom(64)
    if kind == "long":
        return b"\x17\x03\x03\xff\xff" + os.urandom(65535)
    return foreign.read_bytes() if kind == "foreign" else last


def attack(kind: str, way: int, between: Between, foreign: Path) -> str:
    end = time.monotonic() + LIMIT_S
    if kind == "stall":  # nothing goes through any more, neither way
        while time.monotonic() < end:
            for readable in between.readable(0.1):
                if not between.ends[readable][0].recv(65536):
                    return "closed"
        return "open"
    while kind == "replay" and not between.last[way]:
        if not between.pump(0.1):
            return "closed"
    if kind != "flip":
        between.ends[way][1].sendall(bytes_of(kind, between.last[way], foreign))

    def flipped(at: int, chunk: bytes) -> bytes:
        middle = len(chunk) // 2
        if kind != "flip" or at != way:
            return chunk
        return chunk[:middle] + bytes([chunk[middle] ^ 1]) + chunk[middle + 1 :]

    while time.monotonic() < end:
        if not between.pump(0.1, flipped):
            return "closed"
    return "open"


def stand_between(
    state: str, what: str, foreign: Path, listener: socket.socket, controller: tuple[str, int]
) -> str:
    """The answer."""
    kind, direction = what.split(".")
    listener.settimeout(60)
    try:
        between = Between(listener.accept()[0], socket.create_connection(controller, 20))
        if state == "tape":
            return tape(between, foreign)
        if not come_to(state, between):
            return "never"
    except OSError:
        return "never"
    try:
        return attack(kind, 0 if direction == "up" else 1, between, foreign)
    except OSError:  # the end that was to get something was closed
        return "closed"


def main() -> None:
    state, what, result, regroup, *arguments = sys.argv[1:]
    *before, endpoints, build = arguments
    address, port = endpoints.split(",")[0].rsplit(":", 1)
    listener = socket.create_server(("127.0.0.1", 0))
    if (child := os.fork()) == 0:
        if os.fork() != 0:  # the agent ends its descendants
            os._exit(0)
        os.setsid()
        nothing = os.open("/dev/null", os.O_RDWR)
        for stream in (0, 1, 2):  # they are the agent's
            os.dup2(nothing, stream)
        answer = stand_between(
            state, what, Path(result).parents[2] / "tape", listener, (address, int(port))
        )
        part = Path(result + ".new")
        part.write_text(answer)
        part.rename(result)
        os._exit(0)
    os.waitpid(child, 0)
    here = f"127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    os.execv(regroup, [regroup, *before, here, build])


if __name__ == "__main__":
    main()
