"""Hostile clients of the port on which an agent serves a state transfer: strangers, one with
another secret, one of another job, and some with the secret that send requests no agent would send.
They get nothing, the state transfer goes on, and the job ends with the same weights."""

import os
import re
import subprocess
from pathlib import Path

import strangers
from hosts import Host, Hosts, until
from tapping import tap
from training import BIN, EPOCHS, Training, ports, processes, weights_alone

HOSTILE = BIN.parent / "tests/bin/hostile_transfer"
MARK = b"regroup1"  # before the secret, as an agent gets it
BALLAST = 3_000_000
RATE = "3mbit"  # BALLAST takes 8 s
LEARN = ("--learner-steps", "64", "--learner-state", "1", "--initial-size", "2")
# Expected outcome; "{}" is the id of the requested state transfer.
LINKED = {
    "silent": "told: no TransferRequest received in time",
    "noise": "closed",
    "empty": "closed",
    "cut": "closed",
    "orders": "closed",
    "part": "closed",
    "parts": "closed",
    "length": "closed",
    "chunk": "closed",
    "error": "closed",
    "other": "told: state transfer {} is not served here",
    "twice": "told: state transfer {} is not served here",
    "deaf": "open",
}


def door(host: Host) -> int:
    (port,) = [port for pid in processes(host, "regroup-agent") for port in ports(pid)]
    return port


def job_and_node(host: Host) -> tuple[str, int]:
    """As the agent there was told."""
    words = Path(f"/proc/{processes(host, 'regroup-agent')[-1]}/cmdline").read_text().split("\0")
    at = words.index("--node-agent")
    return words[at + 1], int(words[at + 2])


class Callers:
    """Programs on one host that connect to the transfer port of another."""

    def __init__(self, host: Host, door_of: Host, transfer: int):
        self.host, self.transfer = host, transfer
        self.address = f"{door_of.address}:{door(door_of)}"
        self.job, self.node = job_and_node(door_of)
        self.calls: dict[str, subprocess.Popen] = {}

    def call(
        self, name: str, what: str, secret: bytes, *, job: str = "", to: int | None = None
    ) -> None:
        to = self.node if to is None else to
        command = [
            HOSTILE,
            job or self.job,
            "4000",
            str(to),
            self.address,
            str(self.transfer),
            what,
        ]
        process = self.host.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.stdin.write(MARK + secret)
        process.stdin.flush()
        self.calls[name] = process

    def answers(self) -> dict[str, str]:
        return {name: call.communicate(timeout=60)[0].decode() for name, call in self.calls.items()}


def transfer_for(job: Training, member: int) -> int:
    said = "\n".join(sentence["why"] for sentence in job.status()["history"])
    found = re.findall(rf"state transfer (\d+) for member {member}\b", said)
    return int(found[-1]) if found else 0


def test_who_comes_to_a_transfer_harms_nobody(hosts: Hosts, tmp_path: Path):
    undisturbed = weights_alone(tmp_path, EPOCHS, BALLAST)
    folder, tapped = tap(hosts, "node2")
    options = ("--prefix", str(folder), *LEARN)
    where = "node1:2,node2:1,node3:1"
    job = Training(hosts, where, "2:4", options, epochs=EPOCHS, pace_us=200_000, ballast=BALLAST)
    try:
        job.reach(3)
        job.control("resize", "3")
        job.until_size(3)  # on node2, which had a state transfer: from now on there is a port
        hosts[2].slow(RATE)
        crowd = strangers.send(hosts[1], hosts[0].address, door(hosts[0]))
        strangers.wait_connected(crowd)
        job.control("resize", "4")
        transfer = until(lambda: transfer_for(job, 3), "a transfer")
        callers = Callers(hosts[1], hosts[0], transfer)
        secret = tapped.read_bytes()
        for what in LINKED:
            callers.call(what, what, secret)
        callers.call("secret", "twice", os.urandom(len(secret)))
        callers.call("job", "twice", secret, job="another")
        callers.call("node", "twice", secret, to=callers.node + 1)
        here = hosts[2].received() + BALLAST / 10
        until(lambda: hosts[2].received() > here, "more of the state")
        answers = callers.answers()
        strangers.expect_refused(crowd)
        hosts[2].slow(None)
        job.until_size(4)
        said = "\n".join(sentence["why"] for sentence in job.status()["history"])
        assert transfer_for(job, 3) == transfer, said
        assert "member 3 has caught up" in said, said
        job.hurry()
        job.expect_weights(undisturbed)
    finally:
        hosts[2].slow(None)
        job.close()
    wanted = {what: answer.format(transfer + (what == "other")) for what, answer in LINKED.items()}
    assert answers == wanted | dict.fromkeys(("secret", "job", "node"), "refused")
