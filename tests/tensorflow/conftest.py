"""The launcher fixture of tests/cli, and TensorFlow jobs as the examples start them."""

import importlib.util
import os
import re
import signal
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location(
    "cli_conftest", Path(__file__).parents[1] / "cli/conftest.py"
)
cli = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cli)
regroup = cli.regroup

EXAMPLES = Path("examples/tensorflow")
TF_DEADLINE_S = 240.0  # an import alone takes 5 s of a free core


class TensorFlowJob:
    def __init__(self, job: "cli.Job"):
        self.job = job

    def wait(self) -> int:
        status = self.job.wait(TF_DEADLINE_S)
        self.job.assert_nothing_left()
        return status

    def wait_epoch(self, epoch: int) -> None:
        cli.until(
            lambda: (
                re.search(rf"^epoch +{epoch} ", self.job.out, re.MULTILINE)
                or self.job.process.poll()
            ),
            f"epoch {epoch}: {self.job.err}",
            TF_DEADLINE_S,
        )

    @property
    def accuracies(self) -> list[float]:
        return [float(found) for found in re.findall(r"test accuracy ([\d.]+)%", self.job.out)]

    def member(self, role: str, index: int = 0) -> tuple[int, dict[str, str]]:
        """The process of a member, and its environment."""

        def find():
            for pid in self.job.living():
                try:
                    lines = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
                except OSError:  # it has ended meanwhile
                    continue
                env = dict(line.split("=", 1) for line in lines if "=" in line)
                place = (
                    env.get("PAI_CURRENT_TASK_ROLE_NAME"),
                    env.get("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"),
                )
                if place == (role, str(index)):
                    return pid, env
            return None

        return cli.until(find, f"a process of {role} {index}")

    def kill(self, role: str, index: int = 0) -> dict[str, str]:
        pid, env = self.member(role, index)
        os.kill(pid, signal.SIGKILL)
        return env


@pytest.fixture
def tensorflow(regroup):
    """Starts `regroup ARGUMENTS` in the repository's folder, as the examples' first lines do."""

    def start(*arguments: str) -> TensorFlowJob:
        env = {
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "CUDA_VISIBLE_DEVICES": "",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        return TensorFlowJob(regroup.start(*arguments, env=env, cwd=cli.ROOT))

    return start
