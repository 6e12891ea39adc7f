"""Jobs of roles: what members are told, who is started again, how the job ends."""

import json
import os
import signal
import textwrap

import pytest
from conftest import until

# A server at the address of TF_CONFIG, as TensorFlow's: it tells its port and waits.
SERVER = textwrap.dedent("""
    import json, os, socket, time
    config = json.loads(os.environ["TF_CONFIG"])
    task = config["task"]
    address = config["cluster"][task["type"]][task["index"]]
    server = socket.create_server(("", int(address.rsplit(":", 1)[1])))  # sets SO_REUSEADDR
    print(task["type"], task["index"], address, os.getpid(), "served", flush=True)
    time.sleep(600)
""")


def kinds(**scripts: str) -> list[str]:
    """One shell script for each role."""
    return [
        "sh",
        "-c",
        "case $PAI_CURRENT_TASK_ROLE_NAME in "
        + " ".join(f"{k}) {v};;" for k, v in scripts.items())
        + " esac",
    ]


def test_ranks_go_role_by_role_and_everybody_knows_the_cluster(regroup):
    job = regroup.run(
        "--role", "ps=2", "--role", "evaluator=1", "sh", "-c", 'echo "$RANK $WORLD_SIZE $TF_CONFIG"'
    )
    assert job.wait() == 0, job.err  # without chief and worker everybody is awaited
    told = [line.split(maxsplit=2) for line in sorted(job.out.splitlines())]
    configs = [json.loads(config) for _, _, config in told]
    assert [(rank, size) for rank, size, _ in told] == [("0", "3"), ("1", "3"), ("2", "3")]
    assert [c["task"] for c in configs] == [
        {"type": "ps", "index": 0}, {"type": "ps", "index": 1}, {"type": "evaluator", "index": 0},
    ]  # fmt: skip
    assert all(c["cluster"] == configs[0]["cluster"] for c in configs)
    assert list(configs[0]["cluster"]) == ["ps"] and len(set(configs[0]["cluster"]["ps"])) == 2


def test_programs_may_differ(regroup):
    job = regroup.run(
        "--role",
        "chief=1",
        "sh",
        "-c",
        "echo c$RANK",
        ":",
        "--role",
        "worker=2",
        "sh",
        "-c",
        "echo w$RANK",
    )
    assert job.wait() == 0, job.err
    assert sorted(job.out.splitlines()) == ["c0", "w1", "w2"]


def test_a_worker_comes_back_at_its_address(regroup):
    job = regroup.start("--role", "worker=1", "--role", "ps=1", "python3", "-c", SERVER)
    first = job.wait_out(r"^worker 0 (\S+) (\d+) served")
    job.wait_out(r"^ps 0 \S+ \d+ served")
    os.kill(int(first[2]), signal.SIGKILL)
    job.wait_out(rf"^worker 0 {first[1]} (?!{first[2]} )\d+ served")
    job.wait_err(
        r"rank 0 \(worker 0\) \(pid \d+\) was killed by signal 9 \(SIGKILL\): restarting it"
    )
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() != 0
    job.assert_nothing_left()


def test_kill_member_names_a_role_and_an_index_or_a_number(regroup):
    end = 'echo "up $REGROUP_ROLE_RANK $REGROUP_RESTART_COUNT"; [ $RANK = 0 ] || exec sleep 600'
    roles = ("--role", "ps=1", "--role", "worker=3", "--ps-memory", "64M")
    job = regroup.start("--oversubscribe", *roles, "sh", "-c", end)
    for rank in range(3):
        job.wait_out(f"^up {rank} 0")

    def shown() -> dict:
        members = json.loads(regroup.control("status", "--json").stdout)["members"]
        return {f"{m['role']}:{m['role_index']}": m["rank"] for m in members}

    def refused(member: str) -> str:
        done = regroup.control("kill-member", member)
        return done.stderr if done.returncode == 1 else ""

    until(lambda: shown().get("worker:2") == 2, "the roles of members")
    until(lambda: refused("worker:0"), "the end of worker 0")
    killed = {"worker:1": "member 1 (worker 1)", "2": "member 2 (worker 2)"}
    for rank, (member, name) in enumerate(killed.items(), 1):
        done = regroup.control("kill-member", member)
        assert (done.returncode, done.stdout) == (0, f"{name} is being killed\n"), done
        job.wait_err(rf"rank {rank} \(worker {rank}\) \(pid \d+\) was killed by signal 9")
        job.wait_out(f"^up {rank} 1")
    assert regroup.control("kill-member", "ps:0").stdout == (
        "server 0 of the parameter server is being killed\n"
    )
    job.wait_err(r"the parameter server \(pid \d+\) was killed by signal 9")
    for member, why in {
        "worker:0": "worker 0 does not run at present",
        "worker:3": "no such member; there are worker:0 to 2",
        "ps:7": "no such server runs on this host; see `regroup status`",
    }.items():
        assert refused(member) == f"regroup: kill-member {member}: {why}\n"
    job.process.terminate()
    assert job.wait() != 0
    job.assert_nothing_left()


def test_restarts_of_a_worker_end(regroup):
    job = regroup.run(
        "--max-restarts",
        "1",
        "--role",
        "worker=2",
        *kinds(worker="[ $RANK = 0 ] || exit 9; exec sleep 60"),
    )
    assert job.wait() == 9
    assert (
        "rank 1 (worker 1)" in job.err
        and "exited with code 9 after 1 restart: ending the job" in job.err
    )


@pytest.mark.parametrize("lost", ["chief", "ps"])
def test_a_lost_chief_or_ps_ends_the_job(regroup, lost):
    others = {"chief": "exec sleep 60", "worker": "exec sleep 60", "ps": "exec sleep 60"}
    job = regroup.run(
        "--role",
        "chief=1",
        "--role",
        "worker=1",
        "--role",
        "ps=1",
        *kinds(**{**others, lost: "exit 5"}),
    )
    assert job.wait() == 5
    assert f"({lost} 0)" in job.err and "ending the job" in job.err


def test_a_lost_ps_starts_the_job_again_if_that_is_wanted(regroup):
    job = regroup.run(
        "--restart-policy", "restart", "--role", "chief=1", "--role", "worker=1", "--role", "ps=1",
        *kinds(
            chief="echo chief $REGROUP_RESTART_COUNT; "
            "[ $REGROUP_RESTART_COUNT = 1 ] || exec sleep 60",
            worker="exec sleep 60",
            ps="[ $REGROUP_RESTART_COUNT = 1 ] || kill -9 $$; exec sleep 60",
        ),
    )  # fmt: skip
    assert job.wait() == 0, job.err
    assert "restarting the whole job (restart 1 of 3)" in job.err
    assert "chief 1" in job.out.splitlines()


def test_the_end_of_the_chief_ends_servers_and_workers(regroup):
    job = regroup.run(
        "--role", "chief=1", "--role", "worker=1", "--role", "ps=1",
        *kinds(chief="exit 0", worker="exec sleep 60", ps="exec sleep 60"),
    )  # fmt: skip
    assert job.wait() == 0, job.err


def test_a_job_file(regroup, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("""
jobName: night
dataDir: /data
retryCount: 0
taskRoles:
- name: ps
  command: exec sleep 60
- name: worker
  taskNumber: 2
  command: |
    echo "$PAI_JOB_NAME $PAI_DATA_DIR $PAI_TASK_ROLE_LIST $RANK"
    echo "$PAI_PORT_LIST_worker_0_http" | grep -q '^[0-9]*,[0-9]*$'
  portList: [{label: http, portNumber: 2}]
""")
    job = regroup.run("--job", str(file))
    assert job.wait() == 0, job.err
    assert sorted(job.out.splitlines()) == ["night /data ps,worker 1", "night /data ps,worker 2"]


JOB = (
    "jobName: j\njobEnvs: {A: file, B: file}\ntaskRoles:\n- name: worker\n  command: echo $A $B "
    "$C\n"
)


def test_the_command_line_changes_the_environment_of_a_job_file(regroup, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    job = regroup.run("-x", "A=line", "-genv", "C", "all", "--job", str(file))
    assert (job.wait(), job.out) == (0, "line file all\n"), job.err
    assert regroup.run("-envnone", "--job", str(file)).out == "file file\n"


@pytest.mark.parametrize(
    "words", [["-np", "3"], ["--role", "a=1"], ["--wdir", "/"], ["--memory", "1G"]]
)
def test_what_a_job_file_says_itself_is_refused_beside_it(regroup, tmp_path, words):
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    job = regroup.run(*words, "--job", str(file))
    assert job.wait() == 1
    assert f"--job {file}: the job file replaces {words[0]}; remove the option" in job.err


def test_a_wrong_job_file_is_named_with_line_and_field(regroup, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("jobName: j\ntaskRoles:\n- name: worker\n  command: a\n  taskNumber: two\n")
    job = regroup.run("--job", str(file))
    assert job.wait() == 1
    assert (
        f'{file}:5: taskRoles[0].taskNumber: expected a whole number from 1 to 65536, got "two"'
        in job.err
    )
