"""Three MPIs, and running programs under `regroup` or the MPI's own launcher."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(
    os.environ.get("REGROUP_BIN_DIR")
    or Path(shutil.which("regroup") or ROOT / "build/bin/regroup").parent
)
VENV_BIN = ROOT / ".venv/bin"
DEADLINE_S = 180.0
AS_ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []


@dataclass(frozen=True)
class Mpi:
    name: str
    mpicc: Path
    launcher: list[str]  # its own, up to -np
    options: list[str] = field(default_factory=list)  # of regroup, for its rules
    settings: dict[str, str] = field(default_factory=dict)  # that keep it from waiting for nothing

    def __str__(self) -> str:
        return self.name

    @property
    def env(self) -> dict[str, str]:
        """Its programs come first in PATH, as its users have it."""
        rest = [p for p in os.environ["PATH"].split(":") if p != str(VENV_BIN)]
        return {"PATH": ":".join([str(self.mpicc.parent), *rest]), **self.settings}


# Its mpirun waits a second or two between SIGTERM and SIGKILL, also where all ranks are gone.
OPENMPI4 = Mpi(
    "openmpi4",
    Path("/usr/bin/mpicc.openmpi"),
    ["/usr/bin/mpirun.openmpi", *AS_ROOT, "--oversubscribe"],
    settings={"OMPI_MCA_odls_base_sigkill_timeout": "0"},
)
# Its btl/ofi sleeps for a second in each MPI_Init where there is no fabric.
OPENMPI5 = Mpi(
    "openmpi5",
    VENV_BIN / "mpicc",
    [str(VENV_BIN / "mpirun"), *AS_ROOT, "--oversubscribe"],
    settings={"OMPI_MCA_btl": "^ofi"},
)
MPICH = Mpi("mpich", Path("/usr/bin/mpicc.mpich"), ["/usr/bin/mpiexec.hydra"], ["--compat=mpich"])
MPIS = [OPENMPI4, OPENMPI5, MPICH]


# Standard input of hydra's mpiexec, which passes the end of it on to its proxy: mpiexec fails if
# all ranks, and so the proxy, have ended before.
_STAYS_OPEN, _NEVER_WRITTEN = os.pipe()


@dataclass
class Done:
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return sorted(self.out.splitlines())


class Runner:
    """Runs launchers in a clean environment; nothing may be left of what they start."""

    def __init__(self):
        foreign = ("OMPI_", "OPAL_", "PMIX_", "PRTE_", "PMI_", "REGROUP_", "MPI_")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        self.runtime = tempfile.mkdtemp(prefix="rg")
        self.env["XDG_RUNTIME_DIR"] = self.env["PRTE_MCA_prte_tmpdir_base"] = self.runtime

    def run(
        self, command: list[str], env: dict[str, str] | None = None, deadline_s=DEADLINE_S
    ) -> Done:
        mark = f"REGROUP_TEST_MARK={uuid.uuid4().hex}"
        name, value = mark.split("=")
        names = [Path(word).name for word in command[:1]]
        process = subprocess.Popen(
            list(map(str, command)),
            env={**self.env, **(env or {}), name: value},
            stdin=_STAYS_OPEN if "mpiexec.hydra" in names else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        try:
            out, err = process.communicate(timeout=deadline_s)
        finally:
            process.kill()
            left = self.living(mark)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert not left, f"left behind: {left}"
        return Done(process.returncode, out, err)

    def living(self, mark: str, deadline_s: float = 30.0) -> dict[int, str]:
        end = time.monotonic() + deadline_s
        while (found := with_mark(mark)) and time.monotonic() < end:
            time.sleep(0.005)
        return found

    def regroup(
        self, *words: str, env: dict[str, str] | None = None, deadline_s=DEADLINE_S
    ) -> Done:
        return self.run([BIN / "regroup", *words], env, deadline_s)

    def close(self) -> None:
        assert [p.name for p in Path(self.runtime).glob("regroup/*")] == []
        shutil.rmtree(self.runtime, ignore_errors=True)


def with_mark(mark: str) -> dict[int, str]:
    """Processes with the mark in their environment, zombies aside: id -> command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                found[int(path.name)] = (
                    (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                )
        except OSError:
            continue
    return found
