#!/usr/bin/env python3
"""Stand-ins for commands of allocators that this machine cannot have: called by the name of one of them, it
takes what the page of documentation named below lists, refuses all else with status 64, and runs the command
here.

  blaunch  IBM Spectrum LSF 10.1.0, command reference, "blaunch"
  bresize  the same, "bresize"; configuration reference, "Environment variables for resize notification
           command"
  flux     flux-core 0.60 to 0.70, flux-exec(1) and flux-resource(1)
  kubectl  kubernetes.io, reference, kubectl 1.31, "kubectl exec", "kubectl get"; concepts, Jobs, "Completion
           mode" (host names, labels)

Each use is written to $STAND_IN_LOG. The command gets no variable of the caller's but PATH, HOME,
REGROUP_GPU_CLAIMS and STAND_IN_*.
"""

import os
import re
import subprocess
import sys
from pathlib import Path


def refuse(why: str) -> None:
    print(f"{Path(sys.argv[0]).name}: {why}", file=sys.stderr)
    sys.exit(64)


def run(words: list[str]) -> None:
    if not words:
        refuse("a command is missing")
    usual = ("PATH", "HOME", "REGROUP_GPU_CLAIMS")
    kept = {k: v for k, v in os.environ.items() if k in usual or k.startswith("STAND_IN_")}
    os.execvpe(words[0], words, kept)


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
    run(words)


def grown() -> str:
    """What bresize has added: "hC 2"."""
    path = Path(os.environ["STAND_IN_LOG"] + ".grown")
    return path.read_text() if path.exists() else ""


def bresize(words: list[str]) -> None:
    """release [-c] [-rnc resize_notification_cmd | -rncn] released_host_specification job_ID
    request [-c] [-rnc resize_notification_cmd | -rncn] [min_task,]tasks job_ID

    $STAND_IN_GROWTH ("hC 2") is what a request gets; without it the job is not resizable.
    """
    verb = words.pop(0) if words else refuse("a subcommand is missing")
    if verb not in ("release", "request"):
        refuse(f"{verb}: not taken here")
    command = None
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
        Path(os.environ["STAND_IN_LOG"] + ".grown").write_text(os.environ["STAND_IN_GROWTH"])
        notify(command, "grow", os.environ["STAND_IN_GROWTH"])
    elif not re.fullmatch(r"(\d+\*)?[\w.-]+( (\d+\*)?[\w.-]+)*", words[0]):
        refuse(f"{words[0]}: [num_tasks*]host_name is wanted")
    print("Job resize request is submitted.")


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


def ranks(text: str) -> list[int]:
    out: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        out += range(int(first), int(last or first) + 1)
    return out


def flux(words: list[str]) -> None:
    """flux exec [-n] [-l] [-q] [-d DIR] [-r IDSET] [-x IDSET] [-v] COMMAND; flux resource R"""
    verb = words.pop(0) if words else refuse("a command is missing")
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
    run(words)


def kubectl(words: list[str]) -> None:
    """kubectl exec (POD | TYPE/NAME) [-i|--stdin] [-q|--quiet] [-c CONTAINER] -- COMMAND [args...]; get"""
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
    if len(pods) != 1 or pods[0].removeprefix("pod/") not in os.environ["STAND_IN_PODS"].split():
        refuse(f"pods {pods} not found")
    if not stdin:
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    run(command)


def kubectl_get(words: list[str]) -> None:
    """pods --selector=... --output=name | jsonpath=... [--field-selector=...] [--request-timeout=...]"""
    if not words or words.pop(0) != "pods":
        refuse("pods are wanted")
    taken = ("--selector", "--output", "--field-selector", "--request-timeout")
    given = dict(word.split("=", 1) for word in words)
    if unknown := given.keys() - set(taken):
        refuse(f"{unknown}: not taken here")
    labels = dict(word.split("=", 1) for word in given["--selector"].split(","))
    host = labels["batch.kubernetes.io/job-name"] + "-"
    host += labels.get("batch.kubernetes.io/job-completion-index", "0") + "-"
    found = [pod for pod in os.environ["STAND_IN_PODS"].split() if pod.startswith(host)]
    if given["--output"] == "name":
        print("".join(f"pod/{pod}\n" for pod in found), end="")
    else:
        print("45", end="")


if __name__ == "__main__":
    name = Path(sys.argv[0]).name
    with open(os.environ["STAND_IN_LOG"], "a", encoding="utf-8") as log:
        log.write(f"{name} {' '.join(sys.argv[1:])}\n")
    called = {"blaunch": blaunch, "bresize": bresize, "flux": flux, "kubectl": kubectl}
    called[name](sys.argv[1:])
