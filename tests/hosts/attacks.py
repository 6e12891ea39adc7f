"""Attacks on the links of one elastic job, one after another: node2 has many names, an agent of its
own for each, and each life of such an agent suffers the next attack."""

import contextlib
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hosts import Host, Hosts
from training import BIN, Training, kill, processes

EPOCHS = 36  # more than all attacks take, on slow cores too; then the members hurry
LIMIT_S = 420
WRAPPER = """#!/bin/sh
cd {folder} || exit 1
if [ "$(hostname)" = node2 ]; then
  for attack in $(ls plan); do
    mv "plan/$attack" "taken/$attack" 2>/dev/null || continue
    state=${{attack#*-}}
    exec {program} "${{state%%-*}}" "${{attack#*-*-}}" "{folder}/done/$attack" {regroup} "$@"
  done
fi
exec {regroup} "$@"
"""


@contextlib.contextmanager
def names_of_node2(hosts: Hosts, count: int = 8) -> Iterator[list[str]]:
    paths = [hosts.folder / name for name in ("hosts", "known_hosts")]
    before = [path.read_text() for path in paths]
    names = [f"evil{i}" for i in range(count)]
    # names of one address would be one host
    addresses = [f"10.77.0.{100 + i}" for i in range(count)]
    key = next(
        line.split(maxsplit=1)[1] for line in before[1].splitlines() if line.startswith("node2")
    )
    lines = [f"{address} {name}\n" for address, name in zip(addresses, names, strict=True)]
    paths[0].write_text(before[0] + "".join(lines))
    paths[1].write_text(before[1] + "".join(f"{name} {key}\n" for name in names))
    for address in addresses:
        hosts[1].network("ip", *f"addr add {address}/24 dev eth0".split())
    try:
        yield names
    finally:
        for address in addresses:
            hosts[1].network("ip", *f"addr del {address}/24 dev eth0".split())
        for path, text in zip(paths, before, strict=True):
            path.write_text(text)


class Plan:
    """Attacks (state, what) that are still to come, and what came of the others."""

    def __init__(
        self, hosts: Hosts, attacks: Sequence[tuple[str, str]], program: Sequence[str | Path]
    ):
        self.text = ""  # what the job said
        self.folder = Path(hosts.folder) / f"plan-{time.monotonic_ns()}"
        for name in ("plan", "taken", "done", "bin"):
            (self.folder / name).mkdir(parents=True)
        self.names = [f"{i:02}-{state}-{what}" for i, (state, what) in enumerate(attacks)]
        for name in self.names:
            (self.folder / "plan" / name).touch()
        wrapper = self.folder / "bin" / "regroup"
        words = " ".join(shlex.quote(str(word)) for word in program)
        regroup = shlex.quote(str(BIN / "regroup"))
        wrapper.write_text(WRAPPER.format(folder=self.folder, program=words, regroup=regroup))
        wrapper.chmod(0o755)

    def hold(self, ranks: Sequence[int]) -> Path:
        """A folder with a file for each of these ranks: who attacks first stays until they are
        gone."""
        folder = self.folder / "done" / f"{self.names[0]}.hold"
        folder.mkdir()
        for rank in ranks:
            (folder / str(rank)).touch()
        return folder

    def answers(self) -> dict[str, str]:
        """Of those that came to their state; the others get another life."""
        found = {}
        for name in self.names:
            done = self.folder / "done" / name
            answer = done.read_text() if done.exists() else ""
            if answer == "never":
                done.unlink()
                (self.folder / "plan" / name).touch()
            elif answer:
                found[name] = answer
        return found


def check_text(text: str) -> None:
    """No line is another's, no terminal obeys any, and no member has a number that was never
    given."""
    lines = [line for line in text.split("\n") if line.startswith("regroup:")]
    assert not [line for line in lines if re.search(r"[\x00-\x1f\x7f-\x9f]", line)], text
    assert not [line for line in lines if line.startswith("regroup: forged")], text
    assert all(
        int(member) < 1000 for line in lines for member in re.findall(r"member (\d+)", line)
    ), text


def play(
    hosts: Hosts,
    where: str,
    plan: Plan,
    undisturbed: str,
    members: str = "2:4",
    victims: tuple[Host, str] | None = None,
    pace_us: int = 40_000,
) -> dict[str, str]:
    """Runs a job of EPOCHS; the answer to every attack of the plan. Its weights are checked, and
    its text. `victims`: a host and a name of processes; else members of node3. One is killed, and
    once the job has trained on, the next."""
    host, victim = victims or (hosts[2], "chaos_member")
    options = ("--prefix", str(plan.folder))
    job = Training(hosts, where, members, options, epochs=EPOCHS, pace_us=pace_us)
    try:
        end, next_kill, reached = time.monotonic() + LIMIT_S, time.monotonic(), 0
        while len(answers := plan.answers()) < len(plan.names):
            missing = sorted(set(plan.names) - answers.keys())
            assert job.process.poll() is None, f"it is over before {missing}\n{job.text()}"
            assert time.monotonic() < end, f"{missing} did not come\n{job.text()}"
            # A kill before the round of the last is over would only put off who is to be started.
            trains = time.monotonic() > next_kill and job.trails.furthest() > reached
            if trains and (found := processes(host, victim)):
                kill(found[:1])  # so that there are rounds
                next_kill, reached = time.monotonic() + (4 if victims else 2), job.trails.furthest()
            time.sleep(0.05)
        job.hurry()
        job.expect_weights(undisturbed)
        plan.text = job.text()
        check_text(plan.text)
        return answers
    finally:
        job.close()
