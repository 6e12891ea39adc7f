"""Waiting for something to become true, with a deadline."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], what: str, deadline_s: float = 60.0, pause_s: float = 0.005):
    """Asks again and again until the answer is true; returns it. TimeoutError says what was waited for."""
    end = time.monotonic() + deadline_s
    while not (answer := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {deadline_s:g} s")
        time.sleep(pause_s)
    return answer
