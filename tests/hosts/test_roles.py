"""Jobs of roles on several hosts: who is told what, who is started again where, how the job
ends."""

import json
import signal
import subprocess
import sys
import textwrap

import pytest
from hosts import ROOT, Hosts, until
from test_mpi import COMPILERS
from test_mpi import run as run_mpi
from test_run import nothing_is_left, run, start  # noqa: F401

WHERE = ["-H", "node1:1,node2:2,node3:2"]
ROLES = ["--role", "ps=1", "--role", "worker=4"]

# Serves at its address of TF_CONFIG, and greets everybody at theirs.
GREET = textwrap.dedent("""
    import json, os, socket, threading, time
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    mine = cluster[task["type"]][task["index"]]
    everybody = sorted(address for role in cluster.values() for address in role)
    server = socket.create_server(("", int(mine.rsplit(":", 1)[1])))
    def answer():
        for _ in everybody:
            server.accept()[0].sendall(mine.encode())
    thread = threading.Thread(target=answer)
    thread.start()
    def greet(address):
        host, port = address.rsplit(":", 1)
        for _ in range(600):
            try:
                return socket.create_connection((host, int(port)), 30).recv(100).decode()
            except ConnectionRefusedError:
                time.sleep(0.05)
    assert [greet(address) for address in everybody] == everybody
    thread.join()
    print(os.environ["RANK"], socket.gethostname(), mine, os.environ["LOCAL_RANK"], flush=True)
    server.close()
    if task["type"] == "ps":
        time.sleep(600)  # it is ended when the workers have ended
    try:  # who wait until it has printed its line
        for _ in range(600):
            host, port = cluster["ps"][0].rsplit(":", 1)
            socket.create_connection((host, int(port)), 30).close()
            time.sleep(0.05)
    except ConnectionRefusedError:
        pass
""")


def test_everybody_is_met_at_the_address_that_all_were_told(hosts: Hosts):
    before = [host.sent() for host in hosts]
    done = run(hosts, *WHERE, *ROLES, "/usr/bin/python3", "-c", GREET)
    assert (done.status, done.err) == (0, ""), done.out
    told = [line.split() for line in sorted(done.out.splitlines())]
    assert [(rank, host, local) for rank, host, _, local in told] == [
        ("0", "node1", "0"), ("1", "node2", "0"), ("2", "node2", "1"),
        ("3", "node3", "0"), ("4", "node3", "1"),
    ]  # fmt: skip
    addresses = {host.name: host.address for host in hosts}
    assert all(at.startswith(addresses[host] + ":") for _, host, at, _ in told)
    assert all(host.sent() > was for host, was in zip(hosts, before, strict=True))


LIVE = 'echo "$RANK $(hostname) $REGROUP_RESTART_COUNT $$ $TF_CONFIG"; sleep 60'


def test_a_worker_comes_back_on_its_host_at_its_address(hosts: Hosts):
    script = (
        f'if [ $REGROUP_RESTART_COUNT = 1 ]; then echo "$RANK $(hostname) 1 $$ $TF_CONFIG"; else '
        f"{LIVE}; fi"
    )
    job = start(hosts, *WHERE, "--role", "worker=4", "sh", "-c", script)
    first = {}
    while len(first) < 4:
        rank, host, restarts, pid, config = job.stdout.readline().split(maxsplit=4)
        first[rank] = (host, restarts, int(pid), json.loads(config))
    host, _, pid, config = first["3"]
    assert host == "node3"
    assert hosts[2].run(["kill", "-9", str(pid)]).returncode == 0
    rank, host, restarts, _, after = job.stdout.readline().split(maxsplit=4)
    assert (rank, host, restarts, json.loads(after)) == ("3", "node3", "1", config)
    for rank in ("0", "1", "2"):
        host, _, pid, _ = first[rank]
        assert hosts[int(host[-1]) - 1].run(["kill", "-9", str(pid)]).returncode == 0
    _, err = job.communicate(timeout=120)
    assert job.returncode == 0
    killed = f"rank 3 (worker 3) (pid {first['3'][2]} on node3) was killed by signal 9 (SIGKILL)"
    assert f"{killed}: restarting it (restart 1 of 3)" in err


def test_a_host_that_is_lost_ends_the_job(own_hosts: Hosts):
    job = start(own_hosts, "-H", "node1:1,node2:1", "--role", "worker=2", "sh", "-c", LIVE)
    for _ in range(2):
        assert job.stdout.readline()
    own_hosts[1].kill()
    _, err = job.communicate(timeout=120)
    assert job.returncode == 1
    assert "host node2" in err and "ending the job" in err


def test_a_port_that_is_taken_there_is_named(hosts: Hosts):
    program = (
        "import socket, time\ns = socket.create_server(('', 7071))\nprint('up', "
        "flush=True)\ntime.sleep(600)"
    )
    with hosts[1].popen(
        ["/usr/bin/python3", "-c", program], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout.readline() == "up\n"
        file = hosts.folder / "roles.yaml"
        file.write_text(
            "jobName: j\ntaskRoles:\n- {name: worker, taskNumber: 2, command: 'true',\n"
            "   portList: [{label: http, portNumber: 1, beginAt: 7070}]}\n"
        )
        done = run(hosts, "-H", "node1:1,node2:1", "--job", str(file))
        server.kill()
    assert done.status == 1, (done.out, done.err)
    assert "host node2: bind(0.0.0.0:7071): Address already in use" in done.err


@pytest.fixture(params=["openmpi-5", "mpich"])
def program(request, hosts: Hosts) -> str:
    path = hosts.folder / f"mpi_program.{request.param}"
    if not path.exists():
        command = [COMPILERS[request.param], "-O1", "-o", path, ROOT / "tests/pmi/mpi_program.c"]
        subprocess.run(command, check=True, timeout=90, capture_output=True)
    return str(path)


MPI_ROLES = ["-H", "node1:1,node2:1,node3:1", "--role", "chief=1", "--role", "worker=2"]


def test_an_mpi_program_has_one_world_over_all_hosts(hosts: Hosts, program: str):
    done = run_mpi(hosts, *MPI_ROLES, program)
    assert done.returncode == 0, done.stderr
    assert sorted(line.split(" universe")[0] for line in done.stdout.splitlines()) == [
        "rank 0 of 3 app 0", "rank 1 of 3 app 1", "rank 2 of 3 app 1",
    ]  # fmt: skip


def test_a_death_inside_mpi_starts_the_whole_job_again(hosts: Hosts, program: str):
    done = run_mpi(hosts, "--term-grace", "1", *MPI_ROLES, program, "retry", "kill")
    assert done.returncode == 0, done.stderr
    assert len([line for line in done.stdout.splitlines() if " of 3 app " in line]) == 3
    assert "no process can replace it in MPI_COMM_WORLD: restarting the whole job" in done.stderr


def test_a_ps_killed_inside_mpi_ends_the_job_whoever_else_fails_with_it(hosts: Hosts, program: str):
    roles = ["-H", "node1:1,node2:1,node3:1", "--role", "ps=2", "--role", "worker=1"]
    done = run(hosts, "--term-grace", "1", *roles, program, "end", "kill")
    assert done.status == 128 + signal.SIGKILL, done.err
    assert (
        "rank 1 (ps 1)" in done.err
        and "was killed by signal 9 (SIGKILL): ending the job" in done.err
    )
    assert "restarting the whole job" not in done.err


def test_who_dies_before_mpi_is_replaced_in_the_same_world(hosts: Hosts, program: str):
    script = f"if [ $RANK = 1 ] && [ $REGROUP_RESTART_COUNT = 0 ]; then exit 3; fi; exec {program}"
    done = run_mpi(hosts, *MPI_ROLES, "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    assert "on node2) exited with code 3: restarting it (restart 1 of 3)" in done.stderr


def test_a_tensorflow_cluster_trains_over_two_hosts(hosts: Hosts):
    before = hosts[1].sent()
    quiet = ["-x", "TF_CPP_MIN_LOG_LEVEL=2", "-x", "CUDA_VISIBLE_DEVICES="]
    roles = ["--role", "chief=1", "--role", "worker=1", "--role", "ps=1"]
    program = [
        sys.executable,
        str(ROOT / "examples/tensorflow/parameter_server.py"),
        "--epochs",
        "8",
    ]
    job = start(hosts, "-H", "node2:1,node3:2", *quiet, *roles, *program)
    out, err = job.communicate(timeout=240)
    assert job.returncode == 0, err
    assert "test accuracy 9" in out
    assert hosts[1].sent() > before + 1_000_000  # gradients and parameters
    until(lambda: job.poll() is not None, "its end")
