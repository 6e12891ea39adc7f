"""Waiting for something to become true, with a deadline."""

import time
from collections.abc import Callable

MOST_PAUSE_S = 0.1


def until(
    condition: Callable[[], object], what: str, deadline_s: float = 60.0, pause_s: float = 0.005
):
    """Asks again and again until the answer is true; returns it. TimeoutError says what was waited
    for. Between two questions is as long a pause as one takes, so that a costly one leaves the
    processor to who is asked."""
    end = time.monotonic() + deadline_s
    asked = time.monotonic()
    while not (answer := condition()):
        now = time.monotonic()
        if now > end:
            raise TimeoutError(f"{what}: not within {deadline_s:g} s")
        time.sleep(max(pause_s, min(now - asked, MOST_PAUSE_S)))
        asked = time.monotonic()
    return answer
