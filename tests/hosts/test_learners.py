"""Members that join learn while the others train: from agents of other hosts, and are admitted with the same
weights; whoever is lost meanwhile harms nobody."""

from hosts import Hosts
from training import WHERE, Start, Training, ports, processes

LEARN = ("--learner-steps", "8", "--learner-state", "1", "--start", "2")


def sentences(job: Training) -> str:
    return "\n".join(sentence["why"] for sentence in job.status()["history"])


def listening(hosts: Hosts) -> list[int]:
    return [port for host in hosts for pid in processes(host, "regroup-agent") for port in ports(pid)]


def test_members_on_another_host_learn(hosts: Hosts, start: Start, undisturbed: str):
    job = start(WHERE, "2:6", *LEARN, pace_us=10_000)
    job.reach(10)
    before = hosts[0].sent()
    assert listening(hosts) == []
    job.control("resize", "4")
    job.until_size(4)
    print(sentences(job))
    assert "has caught up" in sentences(job)
    assert listening(hosts), "who gives a lesson listens"
    assert hosts[0].sent() > before
    job.expect_weights(undisturbed)
