"""Host lists of Slurm: what `regroup allocation` makes of them, and `scontrol show hostnames`."""

import json
import random
import re
import subprocess
from pathlib import Path

from launchers import BIN, DEADLINE_S, program_environment

CONFIGURATION = "ClusterName=t\nSlurmctldHost=localhost\nNodeName=n1\n"

RANGES = r"\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\]"
WORD = rf"(?=[^,])[^\[\],]*(?:{RANGES}[^\[\],]*)*"


class Generator:
    """Lists that Slurm writes, and now and then one that is broken."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, most: int) -> str:
        width = self.random.choice([1, 1, 1, 2, 3])
        return str(self.random.randint(0, most)).zfill(width)

    def range(self) -> str:
        first = self.random.randint(0, 120)
        width = self.random.choice([1, 1, 2, 3, 4])
        if self.random.random() < 0.4:
            return str(first).zfill(width)
        return f"{str(first).zfill(width)}-{first + self.random.randint(0, 12)}"

    def name(self) -> str:
        out = self.random.choice(["n", "gpu-", "r0c", "node_", "x.y", "a1b", ""])
        brackets = self.random.choice([0, 1, 1, 1, 2, 3])
        for i in range(brackets):
            ranges = [self.range() for _ in range(self.random.choice([1, 1, 2, 3]))]
            out += f"[{','.join(ranges)}]"
            if i + 1 < brackets:
                out += self.random.choice(["n", "-", "c0", "s"])
        return out or "n7"

    def make(self) -> str:
        text = ",".join(self.name() for _ in range(self.random.choice([1, 1, 2, 3, 5])))
        if self.random.random() < 0.1:
            at = self.random.randrange(len(text))
            text = (
                text[:at] + self.random.choice("[],-x0") + text[at + self.random.choice([0, 1]) :]
            )
        return text


def write_configuration(folder: Path) -> None:
    (folder / "slurm.conf").write_text(CONFIGURATION)


def by_slurm(text: str, folder: Path) -> list[str] | None:
    """None: refused."""
    done = subprocess.run(
        ["scontrol", "show", "hostnames", text],
        env=program_environment() | {"SLURM_CONF": str(folder / "slurm.conf")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert "configuration source" not in done.stderr, done.stderr
    refused = done.returncode != 0 or "Invalid hostlist" in done.stdout + done.stderr
    return None if refused else done.stdout.split()


def by_regroup(text: str, count: int) -> list[str] | None:
    """`count`: the number of hosts, without which a job of Slurm is not understood."""
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": text}
    done = subprocess.run(
        [str(BIN / "regroup"), "allocation", "--json"],
        env=program_environment() | job | {"SLURM_TASKS_PER_NODE": f"1(x{count})"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    if done.returncode != 0:
        return None
    return [host["name"] for host in json.loads(done.stdout)["hosts"]]


def reason(text: str, theirs: list[str] | None, ours: list[str] | None) -> str:
    """Why `regroup` means to differ; "": it does not."""
    if theirs is None and ours is not None:
        return "a name may go on after a bracket, as in Flux's lists (host_list.h)"
    if ours is None and theirs is not None:
        if len(set(theirs)) < len(theirs):
            return "a host listed twice is refused: Slurm grants a host once"
        if any(name.startswith("-") for name in theirs):
            return "a name that begins with '-' is refused: ssh would take it for an option"
        if any(name.startswith(".") for name in theirs):
            return "a name that begins with '.' is refused: no host can have it"
        if any(int(last) < int(first) for first, last in re.findall(r"(\d+)-(\d+)[],]", text)):
            return "a range that is reversed is refused; Slurm leaves the name out"
        if not re.fullmatch(f"{WORD}(?:,{WORD})*", text):
            return "a malformed list is refused; Slurm leaves names out, or invents some"
    return ""


def few(names: list[str] | None) -> str:
    if names is None:
        return "refused"
    return f"{len(names)}: {' '.join(names[:8])}{' ...' if len(names) > 8 else ''}"


def compare(text: str, folder: Path) -> tuple[str, str] | None:
    """What differs, and the reason, "" if there is none."""
    theirs = by_slurm(text, folder)
    ours = by_regroup(text, len(theirs) if theirs is not None else 1)
    if ours == theirs:
        return None
    said = f"host list {text!r}\n  regroup:  {few(ours)}\n  scontrol: {few(theirs)}"
    return said, reason(text, theirs, ours)
