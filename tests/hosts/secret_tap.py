"""Writes down the secret that an agent is given, which then runs as ever.

usage: secret_tap.py FILE REGROUP --node-agent ...
"""

import os
import sys
from pathlib import Path

MARK, SECRET = 8, 32


def read_exactly(fd: int, count: int) -> bytes:
    got = b""
    while len(got) < count and (more := os.read(fd, count - len(got))):
        got += more
    return got


def main() -> None:
    message = read_exactly(0, MARK + SECRET)
    Path(sys.argv[1]).write_bytes(message[MARK:])
    near, far = os.pipe()
    os.write(far, message)
    if os.fork() == 0:  # the agent's input stays a sign of life of its launcher
        os.close(near)
        nothing = os.open("/dev/null", os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        os.read(0, 1)
        os._exit(0)
    os.close(far)
    os.dup2(near, 0)
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
