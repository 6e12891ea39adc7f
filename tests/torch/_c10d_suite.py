"""Runs torch's suite with a backend, in processes by fork, and writes which cases passed, failed
and were skipped, and why.

usage: BACKEND=regroup|gloo _c10d_suite.py REPORT
"""

import json
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path

_folder = tempfile.TemporaryDirectory(prefix="regroup-c10d-")
os.environ |= {"TEMP_DIR": _folder.name, "INIT_METHOD": f"file://{_folder.name}/again"}
for name in ("barrier", "test_dir", "init_dir"):
    (Path(_folder.name) / name).mkdir()
REPORT, sys.argv = Path(sys.argv[1]), sys.argv[:1]

import torch  # noqa: E402
from torch.testing._internal.common_distributed import DistTestCases  # noqa: E402

for feature in ("ddp", "subgroup"):  # before the suite is imported, whose decorators ask
    DistTestCases.backend_feature[feature].add("regroup")

from torch.testing._internal.distributed import distributed_test  # noqa: E402


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """The cases, in processes of their own: forked, since each would import torch again."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Result(unittest.TextTestResult):
    """Keeps what passed."""

    def __init__(self, *words, **options) -> None:
        super().__init__(*words, **options)
        self.passed: list[str] = []

    def addSuccess(self, test) -> None:  # noqa: N802
        super().addSuccess(test)
        self.passed.append(test._testMethodName)


def main() -> None:
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Suite)
    result = unittest.TextTestRunner(resultclass=Result, verbosity=1).run(suite)
    failed = [test._testMethodName for test, _ in (*result.failures, *result.errors)]
    skipped: dict[str, list[str]] = {}
    for test, why in result.skipped:
        # A set of names is printed in any order.
        why = re.sub(r"\{(.*)\}", lambda m: ", ".join(sorted(m[1].split(", "))), why)
        skipped.setdefault(why, []).append(test._testMethodName)
    REPORT.write_text(
        json.dumps(
            {
                "passed": sorted(result.passed),
                "failed": sorted(failed),
                "skipped": {why: sorted(names) for why, names in sorted(skipped.items())},
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
