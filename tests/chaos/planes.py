"""The data planes of devices, for random schedules over the fake GPU and the fake NCCL: what a job
is started with, and what its members cannot do."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

FEW = 20  # schedules below which a plane may not have come
# Members of two hosts use NCCL, those of one host plane cuda: joins and leaves change the plane.
HOSTS = ("--device-memory", "7", "--launcher", "fork", "-H", "a:2,b:4")
# By the number of a member. The others of a World go the slower way with it, and back without it.
CANNOT = """case $(($REGROUP_MEMBER % 8)) in
  3) export REGROUP_FAKE_NCCL="$REGROUP_FAKE_NCCL;init-fails" ;;
  5 | 6) export REGROUP_FAKE_CUDA='descriptors=0' ;;
  7) export REGROUP_FAKE_CUDA='import=0' ;;
esac; exec "$0" "$@" """
# Members that die in the midst of a sum, or whose NCCL fails there: faulty.PID names them. An error
# without a death is one after a third of REGROUP_NCCL_TIMEOUT.
FAIL = """case $(($REGROUP_MEMBER % 8)) in
  2) fault=die ;;
  4) fault=async ;;
esac
if [ -n "$fault" ]; then
  : >"${REGROUP_FAKE_NCCL#folder=}/faulty.$$"
  export REGROUP_FAKE_NCCL="$REGROUP_FAKE_NCCL;$fault=$CHAOS_GROUP"
fi
exec "$0" "$@" """


@dataclass
class Plane:
    """How a job uses it."""

    words: tuple[str, ...]
    own: str = ""  # run by the shell before each member
    # Leaves that a member may have computed when it is killed, but not sealed.
    unsealed: int = 1
    needs: tuple[str, ...] = ()  # planes that Worlds of some schedules must have had

    def program(self, member: list[str]) -> list[str]:
        return ["sh", "-c", self.own, *member] if self.own else member

    def env(self, folder: Path, build: Path, seed: int) -> dict[str, str]:
        fakes = build / "tests/fakes"
        libraries = [fakes / "nccl/2.28.9", fakes / "cuda"]
        return {
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
            "REGROUP_FAKE_NCCL": f"folder={folder}",
            "REGROUP_NCCL_TIMEOUT": "6",
            "CHAOS_GROUP": str(9 + seed % 50),
        }


PLANES = {
    "staged": Plane((), needs=("staged",)),
    "cuda": Plane(("--device-memory", "7"), unsealed=7, needs=("cuda",)),
    "nccl": Plane(HOSTS, unsealed=7, needs=("cuda", "nccl")),
    "changing": Plane(HOSTS, CANNOT, unsealed=7, needs=("cuda", "nccl", "staged")),
    "failing": Plane(HOSTS, FAIL, unsealed=7, needs=("cuda", "nccl")),
}


def seen(job) -> set[str]:
    """The plane of the job's World now."""
    plane = json.loads(job.control("status", "--json") or "{}").get("plane", "")
    return {plane} if plane else set()


def has_kernels(build: Path) -> bool:
    """True if nvcc was found: without kernels, staged alone serves."""
    found = re.search(r"^REGROUP_NVCC:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    return found is not None and not found[1].upper().endswith(("OFF", "NOTFOUND"))


def missing_planes(plane: Plane, found: set[str], schedules: int, kernels: bool) -> str:
    """Which planes no World of the schedules had, "" if each had one. Few schedules may have shown
    one plane only, if there are several."""
    needs = plane.needs if kernels else ("staged",)
    if schedules < FEW and len(needs) > 1:
        return ""
    missing = [name for name in needs if name not in found]
    return f"no World had plane {', '.join(missing)}" if missing else ""
