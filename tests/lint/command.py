"""The command line that the lint tests share."""

import pathlib
import sys
from collections.abc import Callable


def main(
    usage: str, violations: Callable[[pathlib.Path], list[str]], self_test: Callable[[], None]
) -> None:
    """Ends with the violations in the tree that the one argument names, or, for --self-test, calls
    that."""
    if len(sys.argv) != 2:
        sys.exit(usage)
    if sys.argv[1] == "--self-test":
        self_test()
    elif refused := violations(pathlib.Path(sys.argv[1])):
        sys.exit("\n".join(refused))
