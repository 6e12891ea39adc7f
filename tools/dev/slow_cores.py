"""usage: python3 tools/dev/slow_cores.py PERCENT SECONDS

Takes PERCENT of the time of each core from all other programs, in slices of 2 to 18 ms, as a
hypervisor does on a machine that others share. Run it beside a test to see whether that needs a
fast machine. It needs the right to real-time scheduling (root); the kernel leaves 5 % to others.
"""

import os
import random
import sys
import time


def take(core: int, share: float, end: float) -> None:
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    draw = random.Random(core)
    while (now := time.monotonic()) < end:
        period = draw.uniform(0.002, 0.018)
        while time.monotonic() < now + share * period:
            pass
        time.sleep((1 - share) * period)


def main(arguments: list[str]) -> int:
    try:
        percent, seconds = map(float, arguments)
    except ValueError:
        print(__doc__, file=sys.stderr)
        return 2
    if not 0 < percent < 95 or seconds <= 0:
        print(
            "slow_cores: expected a share below 95 % and a time, got "
            f"{percent:g} % and {seconds:g} s",
            file=sys.stderr,
        )
        return 2
    end = time.monotonic() + seconds
    children = []
    for core in sorted(os.sched_getaffinity(0)):
        pid = os.fork()
        if pid == 0:
            try:
                take(core, percent / 100, end)
            except PermissionError as error:
                print(f"slow_cores: core {core}: {error}: it needs root", file=sys.stderr)
                os._exit(1)
            os._exit(0)
        children.append(pid)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
