#!/usr/bin/env python3
"""Stand-ins for commands of allocators that this machine cannot have: called by the name of one of
them, it takes what the page of documentation named below lists, refuses all else with status 64,
and runs the command here.

  blaunch     IBM Spectrum LSF 10.1.0, command reference, "blaunch"
  bresize     the same, "bresize"; configuration reference, "Environment variables for
              resize notification
              command"
  flux        flux-core 0.60 to 0.70, flux-exec(1), flux-resource(1) and flux-batch(1)
  kubectl     kubernetes.io, reference, kubectl 1.31, "kubectl exec", "kubectl get"; concepts, Jobs,
              "Completion mode" (host names, labels)
  pbs_attach  OpenPBS 23.06, pbs_attach(8B)
  ssh         OpenSSH 9.2, ssh(1): what is behind the host is one line for a shell there

Each use is written to $STAND_IN_LOG. The command gets no variable of the caller's but PATH, HOME,
REGROUP_GPU_CLAIMS, STAND_IN_* and what its allocator gives it.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path


def refuse(why: str) -> None:
    print(f"{Path(sys.argv[0]).name}: {why}", file=sys.stderr)
    sys.exit(64)


def run(words: list[str], prefix: str = "STAND_IN_", **more: str) -> None:
    """With the variables that begin with `prefix`, and `more`."""
    if not words:
        refuse("a command is missing")
    usual = ("PATH", "HOME", "REGROUP_GPU_CLAIMS")
    begins = ("STAND_IN_", prefix)
    kept = {k: v for k, v in os.environ.items() if k in usual or k.startswith(begins)}
    os.execvpe(words[0], words, kept | more)


def blaunch(words: list[str]) -> None:
    """[-n] [-u file | -z host ... | host] [-use-login-shell | -no-shell] command [argument ...]"""
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "-n":
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        elif word not in ("-use-login-shell", "-no-shell"):
            refuse(f"{word}: not taken here")
    host = words.pop(0) if words else refuse("a host is missing")
    if host not in os.environ.get("LSB_MCPU_HOSTS", "").split()[::2] + grown().split()[::2]:
        refuse(f"{host}: it is no host of this job")
    run(words, "LSB_", LS_JOBPID="4711", LSF_PM_TASKID="2")


def grown() -> str:
    """What bresize has added: "hC 2"."""
    path = Path(os.environ["STAND_IN_LOG"] + ".grown")
    return path.read_text() if path.exists() else ""


def bresize(words: list[str]) -> None:
    """release [-c] [-rnc resize_notification_cmd | -rncn] released_host_specification job_ID
    request [-c] [-rnc resize_notification_cmd | -rncn] [min_task,]tasks job_ID
    cancel job_ID

    $STAND_IN_GROWTH ("hC 2") is what a request gets, "" that it waits; without it the job is not
    resizable. Of a job one request may wait: a further one is refused unless -c cancels that.
    $STAND_IN_PAUSE: seconds before the answer.
    """
    time.sleep(float(os.environ.get("STAND_IN_PAUSE", "0")))
    verb = words.pop(0) if words else refuse("a subcommand is missing")
    if verb not in ("release", "request", "cancel"):
        refuse(f"{verb}: not taken here")
    waiting = Path(os.environ["STAND_IN_LOG"] + ".waiting")
    if verb == "cancel":
        if words != [os.environ["LSB_JOBID"]]:
            refuse(f"{words}: job {os.environ['LSB_JOBID']} is wanted")
        if not waiting.exists():
            print(f"Job <{words[0]}>: No pending allocation request", file=sys.stderr)
            sys.exit(255)
        waiting.unlink()
        print("Job resize request is cancelled.")
        return
    command, replaces = None, "-c" in words
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "-rnc":
            command = words.pop(0)
        elif word not in ("-c", "-rncn"):
            refuse(f"{word}: not taken here")
    if len(words) != 2 or words[1] != os.environ["LSB_JOBID"]:
        refuse(f"{words}: a specification and job {os.environ['LSB_JOBID']} are wanted")
    if "STAND_IN_GROWTH" not in os.environ:
        print(f"Job <{words[1]}>: Job is not resizable", file=sys.stderr)
        sys.exit(255)
    if verb == "request":
        if not re.fullmatch(r"(\d+,)?\d+", words[0]):
            refuse(f"{words[0]}: [min_task,]tasks is wanted")
        if waiting.exists() and not replaces:
            print(f"Job <{words[1]}>: Job has a pending allocation request", file=sys.stderr)
            sys.exit(255)
        if not os.environ["STAND_IN_GROWTH"]:
            waiting.write_text(words[0])
        else:
            Path(os.environ["STAND_IN_LOG"] + ".grown").write_text(os.environ["STAND_IN_GROWTH"])
            notify(command, "grow", os.environ["STAND_IN_GROWTH"])
    elif not re.fullmatch(r"(\d+\*)?[\w.-]+( (\d+\*)?[\w.-]+)*", words[0]):
        refuse(f"{words[0]}: [num_tasks*]host_name is wanted")
    else:
        release(words[0].split())
    print("Job resize request is submitted.")


def release(specification: list[str]) -> None:
    """No more than the job has on a host, and never all of the first one."""
    path = Path(os.environ["STAND_IN_LOG"] + ".released")
    gone = path.read_text().split() if path.exists() else []
    first = os.environ["LSB_MCPU_HOSTS"].split()[0]
    has: dict[str, int] = {}
    for words, sign in (
        (os.environ["LSB_MCPU_HOSTS"].split(), 1),
        (grown().split(), 1),
        (gone, -1),
    ):
        for host, slots in zip(words[::2], words[1::2], strict=True):
            has[host] = has.get(host, 0) + sign * int(slots)
    for word in specification:
        tasks, _, host = word.rpartition("*")
        slots = int(tasks or has.get(host, 0))
        has[host] = has.get(host, 0) - slots
        if has[host] < (host == first) or slots == 0:
            print(f"{word}: Bad host name, host group name or cluster name", file=sys.stderr)
            sys.exit(255)
        gone += [host, str(slots)]
    path.write_text(" ".join(gone))


def notify(command: str | None, event: str, hosts: str) -> None:
    """Later, on the first host of the job: with what all its processes have, and no more."""
    if command is None:
        return
    own = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
    own |= {"LSB_RESIZE_EVENT": event, "LSB_RESIZE_HOSTS": hosts}
    own |= {"LSB_RESIZE_NOTIFY_OK": "0", "LSB_RESIZE_NOTIFY_FAIL": "1"}
    said = f'"$0"; echo "notified {event} $?" >> "$STAND_IN_LOG"'
    null = subprocess.DEVNULL
    words = ["sh", "-c", said, command]
    subprocess.Popen(words, env=own, stdin=null, stdout=null, stderr=null, start_new_session=True)


def ssh(words: list[str]) -> None:
    """ssh [-T] [-x] [-l login_name] [-o option] destination command"""
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in ("-l", "-o"):
            words.pop(0)
        elif word not in ("-T", "-x"):
            refuse(f"{word}: not taken here")
    host = words.pop(0) if words else refuse("a host is missing")
    nodes = os.environ.get("STAND_IN_HOSTS") or Path(os.environ["PBS_NODEFILE"]).read_text()
    if host not in nodes.split():
        refuse(f"{host}: it is no host of this job")
    run(["/bin/sh", "-c", " ".join(words)])


def pbs_attach(words: list[str]) -> None:
    """pbs_attach [-j job ID] [-m port] [-P] [-s] cmd [arg ...]; none of the job's variables is
    there"""
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in ("-j", "-m"):
            words.pop(0)
        elif word not in ("-P", "-s"):
            refuse(f"{word}: not taken here")
    run(words)


def ranks(text: str) -> list[int]:
    out: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        out += range(int(first), int(last or first) + 1)
    return out


def flux(words: list[str]) -> None:
    """flux exec [-n] [-l] [-q] [-d DIR] [-r IDSET] [-x IDSET] [-v] COMMAND; flux resource R
    flux batch [-N NODES] [-n TASKS] --wrap COMMAND: runs it now
    """
    verb = words.pop(0) if words else refuse("a command is missing")
    if verb == "batch":
        while words and words[0].startswith("-"):
            if not re.fullmatch(r"-[Nn]\d+|--wrap", word := words.pop(0)):
                refuse(f"{word}: not taken here")
        os.execvp(words[0], words)
    if verb == "resource" and words == ["R"]:
        print(os.environ["STAND_IN_R"])
        return
    if verb != "exec":
        refuse(f"{verb} {' '.join(words)}: not taken here")
    wanted: list[int] = []
    while words and words[0].startswith("-"):
        name, _, value = words.pop(0).partition("=")
        if name in ("-r", "--rank"):
            wanted = ranks(value or words.pop(0))
        elif name in ("-n", "--noinput"):
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        elif name in ("-d", "--dir"):
            os.chdir(value or words.pop(0))
        elif name not in ("-q", "--quiet", "-v", "--verbose"):
            refuse(f"{name}: not taken here")
    there = ranks(",".join(re.findall(r'"rank": *"([^"]+)"', os.environ["STAND_IN_R"])))
    if len(wanted) != 1 or wanted[0] not in there:
        refuse(f"rank {wanted}: there are {there}")
    run(words, "FLUX_", FLUX_URI=f"local:///run/flux-{wanted[0]}")


def kubectl(words: list[str]) -> None:
    """kubectl exec (POD | TYPE/NAME) [-i|--stdin] [-q|--quiet] [-c CONTAINER] -- COMMAND [args...];
    get"""
    verb = words.pop(0) if words else refuse("a command is missing")
    if verb == "get":
        kubectl_get(words)
        return
    if verb != "exec":
        refuse(f"{verb}: not taken here")
    if "--" not in words:
        refuse("-- is missing")
    own, command = words[: words.index("--")], words[words.index("--") + 1 :]
    pods, stdin = [], False
    while own:
        name, _, value = own.pop(0).partition("=")
        if name in ("-i", "--stdin"):
            stdin = True
        elif name in ("-c", "--container"):
            value or own.pop(0)
        elif not name.startswith("-"):
            pods.append(name)
        elif name not in ("-q", "--quiet"):
            refuse(f"{name}: not taken here")
    if len(pods) != 1 or pods[0].removeprefix("pod/") not in pods_here():
        refuse(f"pods {pods} not found")
    if not stdin:
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    run(command)


def pods_here() -> list[str]:
    """Those that run, or "@FILE", which lists them and may change."""
    text = os.environ["STAND_IN_PODS"]
    return (Path(text[1:]).read_text() if text.startswith("@") else text).split()


def kubectl_get(words: list[str]) -> None:
    """pods --selector=... --output=name | jsonpath=... [--field-selector=...]
    [--request-timeout=...]"""
    if not words or words.pop(0) != "pods":
        refuse("pods are wanted")
    taken = ("--selector", "--output", "--field-selector", "--request-timeout")
    given = dict(word.split("=", 1) for word in words)
    if unknown := given.keys() - set(taken):
        refuse(f"{unknown}: not taken here")
    labels = dict(word.split("=", 1) for word in given["--selector"].split(","))
    host = labels["batch.kubernetes.io/job-name"] + "-"
    index = labels.get("batch.kubernetes.io/job-completion-index")
    host += f"{index}-" if index else r"\d+-"
    found = [pod for pod in pods_here() if re.match(host, pod)]
    if given["--output"] == "name":
        print("".join(f"pod/{pod}\n" for pod in found), end="")
    elif ".status.phase" in given["--output"]:
        print(Path(os.environ["STAND_IN_PHASES"]).read_text(), end="")
    else:
        print("45", end="")


if __name__ == "__main__":
    name = Path(sys.argv[0]).name
    with open(os.environ["STAND_IN_LOG"], "a", encoding="utf-8") as log:
        log.write(f"{name} {' '.join(sys.argv[1:])}\n")
    called = (blaunch, bresize, flux, kubectl, pbs_attach, ssh)
    next(each for each in called if each.__name__ == name)(sys.argv[1:])
