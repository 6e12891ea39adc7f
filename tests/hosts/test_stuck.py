"""A member on another host that SIGKILL does not end holds up nobody; the job ends with the right
sums."""

import os
import re
import signal
import subprocess
from pathlib import Path

from hosts import Host, Hosts, until
from test_checkpoints import needs_fuse, python_on, served
from training import BIN, processes

STEPS = 150
MEMBER = str(BIN.parent / "tests/bin/elastic_member")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@needs_fuse
def test_the_others_go_on_and_end(hosts: Hosts):
    place, real = Path("/tmp/dead"), Path("/tmp/real-dead")
    gates = Path(hosts.folder) / "gates"
    gates.mkdir()
    (gates / "leaf.2").symlink_to(place / "file")
    python_on(hosts[2], "os.mkdir(sys.argv[1])", place)
    output = Path(hosts.folder) / "stuck-output"
    words = [MEMBER, str(STEPS), "30", "", "sum", "0", "64", f"gates={gates}"]
    # twice the 10 s after which a member is left behind, rather than four times
    prompt = {**os.environ, "REGROUP_TIME_LIMIT_FACTOR": "2"}
    with served(hosts[2], place, real) as file_system, output.open("w") as out:
        server = Host.inner(file_system)
        job = hosts[0].popen(
            [
                *(BIN / "regroup", "--ssh-command", " ".join(hosts.ssh), "-H", "node2:2,node3:2"),
                *("-np", "2:4", "--replace", "never", *words),
            ],
            env=prompt,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )

        def until_said(what: str) -> re.Match:
            until(lambda: re.search(what, output.read_text()) or job.poll() is not None, what, 120)
            found = re.search(what, output.read_text())
            assert found, output.read_text()
            return found

        until_said("step 5 ")
        python_on(
            hosts[2], "print(sys.argv[2], file=open(sys.argv[1], 'w'))", f"{real}.hang", "file -1"
        )
        until(lambda: state_of(server) == "T", "a member that waits for the file system")
        assert hosts[0].run([BIN / "regroup", "kill-member", "2"]).returncode == 0
        until_said(
            r"member 2 \(pid \d+\) was killed, but hangs in the kernel \(\w+\): the other members "
            r"continue"
        )
        assert job.wait(120) == 0, output.read_text()
        said = output.read_text()
        assert re.findall(r"^finished (\S+)", said, re.MULTILINE) == [f"{4 * STEPS}.0"] * 3, said
        assert re.search(
            r"member 2 \(pid \d+\) was killed, but hangs .* it is left behind", said
        ), said
        assert processes(hosts[2], "elastic_member")
        assert not processes(hosts[2], "regroup-agent")
        python_on(hosts[2], "os.remove(sys.argv[1])", f"{real}.hang")
        os.kill(server, signal.SIGCONT)
        until(lambda: not processes(hosts[2], "elastic_member"), "its end")
