"""In PYTHONPATH of tests that tools/dev/record_map.py runs: a process ends by writing what it
imported."""

import atexit
import os
import sys


def write_imports() -> None:
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    path = os.path.join(os.environ["REGROUP_IMPORTS"], str(os.getpid()))
    with open(path, "a", encoding="utf-8") as out:
        out.writelines(os.path.abspath(file) + "\n" for file in files if file)


if os.environ.get("REGROUP_IMPORTS"):
    atexit.register(write_imports)
