"""Strangers at a job on several hosts: refused, and the job has the same weights all the same."""

from collections.abc import Iterator

import pytest
from hosts import Hosts, until
from strangers import expect_refused, heard, send
from training import Training, ports, processes, weights_alone

EPOCHS = 6
WHERE = "node1:2,node2:2"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> str:
    return weights_alone(tmp_path_factory.mktemp("undisturbed"), EPOCHS)


@pytest.fixture
def job(hosts: Hosts) -> Iterator[Training]:
    training = Training(hosts, WHERE, "2:4", epochs=EPOCHS, pace_us=200_000)
    training.reach(3)
    yield training
    training.close()


def test_strangers_at_the_controller_get_nowhere(hosts: Hosts, job: Training, undisturbed: str):
    (controller,) = processes(hosts[0], "regroup-control")
    (port,) = ports(controller)
    expect_refused(send(hosts[1], hosts[0].address, port))
    assert job.process.poll() is None, job.text()
    job.hurry()
    job.expect_weights(undisturbed)
    assert job.text().count("generation") == 1, job.text()


def test_strangers_at_a_members_data_port_do_no_harm(hosts: Hosts, job: Training, undisturbed: str):
    member = processes(hosts[1], "chaos_member")[0]
    found = until(lambda: ports(member), "a port of the data plane")
    for port in found:
        heard(send(hosts[0], hosts[1].address, port))
    job.hurry()
    job.expect_weights(undisturbed)


def test_another_user_reaches_no_socket_of_the_job(hosts: Hosts, job: Training, undisturbed: str):
    script = (
        "import glob, os, socket, stat\n"
        "found = glob.glob('/tmp/regroup-*/**', recursive=True)\n"
        "paths = [path for path in found if stat.S_ISSOCK(os.lstat(path).st_mode)]\n"
        "assert paths\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "for path in paths:\n"
        "    s = socket.socket(socket.AF_UNIX)\n"
        "    try: s.connect(path); print('CONNECTED', path)\n"
        "    except PermissionError: print('refused')\n"
    )
    for host in (hosts[0], hosts[1]):
        done = host.run(["/usr/bin/python3", "-c", script])
        assert done.returncode == 0, done.stderr
        assert "refused" in done.stdout
        assert "CONNECTED" not in done.stdout
    job.hurry()
    job.expect_weights(undisturbed)


def test_only_the_controller_and_members_listen(hosts: Hosts, job: Training):
    for name in ("regroup-agent", "regroup-reaper", "regroup-coord", "regroup"):
        for host in (hosts[0], hosts[1]):
            for pid in processes(host, name):
                assert ports(pid) == [], f"{host.name}: {name}"
