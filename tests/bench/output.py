"""How fast members' output is forwarded: GB/s from the members' writes to the reader of `regroup`.

Four ranks, or one, write 100 MB each of 80-byte lines (output_member.cc) under `regroup`, Open MPI
5 (the PyPI wheel), Open MPI 4 (Debian) and hydra. The reader takes what is in the pipe, 1 MiB at
most, and looks at none of it; "file" is a file in memory. Bytes that the launcher adds (tags) do
not count. One sample is a whole run, launch and end included. Before that each side's lines are
checked: all there, whole, in order; a rival that tears some is measured all the same.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import common
from common import BenchError, Row, Side
from launch import environment, find_regroup, version, wheel_mpirun

LINE = 80
DEADLINE_S = 300.0
VERIFY_MB = 4  # per rank
CASES = (  # ranks, tagged, to
    (4, False, "pipe"),
    (4, False, "file"),
    (4, True, "pipe"),
    (4, True, "file"),
    (1, False, "pipe"),
)
LINE_PATTERN = re.compile(rb"(?:\[(?:1,)?(\d+)\](?:<stdout>:)? ?)?rank (\d+) line (\d{9}) x+")


def memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def take_all(fd: int, keep: list[bytes] | None) -> None:
    space = bytearray(1 << 20)
    while count := os.readv(fd, [space]):
        if keep is not None:
            keep.append(bytes(space[:count]))


def run(
    command: Sequence[str], env: dict[str, str], to: str, keep: list[bytes] | None = None
) -> float:
    """Runs `command` to its end; the seconds it took. Its output is appended to `keep`."""
    with tempfile.TemporaryFile(dir=memory_folder()) as file, tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if to == "pipe" else file,
            stderr=said,
            env=env,
        )
        try:
            if process.stdout is not None:
                take_all(process.stdout.fileno(), keep)
                process.stdout.close()
            status = process.wait(DEADLINE_S)
        finally:
            process.kill()
            process.wait()
        seconds = time.perf_counter() - start
        if status != 0:
            said.seek(0)
            raise BenchError(f"{' '.join(command)}: exit status {status}: {said.read()[-300:]!r}")
        if keep is not None and to == "file":
            file.seek(0)
            keep.append(file.read())
    return seconds


def check(name: str, output: bytes, ranks: int, tagged: bool, lines: int) -> None:
    """Raises BenchError unless `output` is `lines` whole lines of each rank, each rank's in
    order."""
    seen = [0] * ranks
    for line in output.splitlines():
        match = LINE_PATTERN.fullmatch(line)
        if match is None or (match[1] is not None) != tagged or (tagged and match[1] != match[2]):
            raise BenchError(f"{name}: a torn or foreign line: {line[:120]!r}")
        rank = int(match[2])
        if int(match[3]) != seen[rank] or len(line) - match.start(2) + len(b"rank ") != LINE - 1:
            raise BenchError(f"{name}: expected line {seen[rank]} of rank {rank}: {line[:120]!r}")
        seen[rank] += 1
    if seen != [lines] * ranks:
        raise BenchError(f"{name}: {seen} lines of each rank came, expected {lines}")


def side(
    name: str,
    launcher: Sequence[str],
    member: str,
    env: dict[str, str],
    case: tuple,
    megabytes: int,
) -> Side:
    """`launcher` is the command up to the number of ranks, tags included if the case has them."""
    ranks, tagged, to = case
    command = [*launcher, "-np", str(ranks), member]

    def verify() -> None:
        kept: list[bytes] = []
        run([*command, str(VERIFY_MB)], env, to, kept)
        check(name, b"".join(kept), ranks, tagged, VERIFY_MB * 1_000_000 // LINE)

    return Side(
        name, verify, lambda: [ranks * megabytes / 1e3 / run([*command, str(megabytes)], env, to)]
    )


Launchers = dict[str, tuple[list[str], str]]  # name -> command, option for tags


def find_launchers(env: dict[str, str], regroup: str | None) -> tuple[Launchers, list[str]]:
    """Ours and the rivals that are installed, and the names of those that bind."""
    found: Launchers = {"ours": ([find_regroup(regroup), "--oversubscribe"], "--tag-output")}
    bound = []
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    for path in (wheel_mpirun(), shutil.which("mpirun", path="/usr/bin")):
        if path is None:
            continue
        name = f"mpirun-{version(path, env)}"
        found[name] = ([path, *as_root, "--oversubscribe"], "--tag-output")
        bound.append(name)
    if not bound:
        print("output: no mpirun is installed: ours is measured alone", file=sys.stderr)
    if hydra := shutil.which("mpiexec.hydra"):
        found["hydra"] = ([hydra], "-l")
    return found, bound


def usable(sides: Sequence[Side], say: Callable[[str], None]) -> list[Side]:
    """Ours must pass; a rival that tears or loses lines is measured all the same, and that is
    said."""
    sides[0].verify()
    out = [sides[0]]
    for rival in sides[1:]:
        try:
            rival.verify()
        except BenchError as error:
            say(str(error))
        out.append(Side(rival.name, lambda: None, rival.block))
    return out


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--regroup", metavar="PATH", help="the regroup command to time")
    options.add_argument("--member", metavar="PATH", default=str(common.BIN / "output_member"))
    options.add_argument(
        "--pairs", type=int, metavar="N", help="runs of each side (default 30, quick 3)"
    )
    options.add_argument("--mb", type=int, metavar="N", help="of each rank (default 100, quick 25)")
    args = options.parse_args()
    env = environment()
    megabytes = args.mb or (25 if args.quick else 100)
    if not Path(args.member).exists():
        raise BenchError(f"no executable at {args.member}: build it, or name it with --member")
    launchers, bound = find_launchers(env, args.regroup)
    rows = []
    for case in CASES[:1] + CASES[2:3] if args.quick else CASES:
        ranks, tagged, to = case
        sides = [
            side(name, [*command, tag] if tagged else command, args.member, env, case, megabytes)
            for name, (command, tag) in launchers.items()
        ]
        sides = usable(sides, lambda text: print(f"output: {text}", file=sys.stderr))
        samples = common.alternate(sides, args.pairs or (3 if args.quick else 30))
        stats = {name: common.summarize(values) for name, values in samples.items()}
        title = f"{ranks} x {megabytes} MB{' tagged' if tagged else ''} to a {to}"
        rows.append(Row("output", title, "GB/s", stats.pop("ours"), stats, bound))
    common.report(rows, args.json)


if __name__ == "__main__":
    common.main(main)
