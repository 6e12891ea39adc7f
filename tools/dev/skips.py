"""Which skipped tests count as failed: in CI all that do not lack hardware or `--full`.

usage: skips.py FILE.xml: prints why tests of a JUnit report of CTest were skipped, a line for each
reason. The exit status is 1 if one of the reasons fails in CI and CI=true.
"""

import collections
import os
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping

# What a machine of CI may lack; FUSE, control groups, namespaces, libpmix, memory and daemons it
# must have.
MAY_LACK = re.compile(
    r"--full|REGROUP_TEST_FULL|\bGPUs?\b|two processors|two cores|one core\b|\bcores$|cgroup v1"
    r"|this processor has no|ThreadSanitizer|[Tt]he sanitizer|nobody can be missing|threads cannot "
    r"be killed"
    r"|no interface but loopback|file system has nothing but a cache|kernel does not say|one "
    r"thread loads"
)


def skip_fails(reason: str, environment: Mapping[str, str]) -> bool:
    """Whether a test that was skipped for `reason` has failed."""
    return environment.get("CI") == "true" and not MAY_LACK.search(reason)


def reasons(report: str) -> dict[str, list[str]]:
    """The names of the skipped tests by reason, of the text of a JUnit report of CTest."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for case in ET.fromstring(report).iter("testcase"):
        if case.find("skipped") is None:
            continue
        said = case.findtext("system-out") or ""
        match = re.search(r": Skipped\n(.*)|^skipped: (.*)", said, re.MULTILINE)
        found[
            (match.group(1) or match.group(2)).strip() if match else "no reason was given"
        ].append(case.get("name", "?"))
    return found


def main() -> int:
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        skipped = reasons(file.read())
    failed = False
    for reason, names in sorted(skipped.items()):
        fails = skip_fails(reason, os.environ)
        failed |= fails
        verdict = "FAILED, as CI must not lack this" if fails else "skipped"
        print(f"{len(names)} {verdict}: {reason} ({names[0]}{' ...' if len(names) > 1 else ''})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
