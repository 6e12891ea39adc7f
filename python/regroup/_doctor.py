"""`regroup doctor`: examines this machine and its Python packages, then trains on it for a moment.

Each line says what is well, or what to do. `regroup doctor` runs this module with the python3 of
the user: python3 -m regroup._doctor LAUNCHER [--json].
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Level = Literal["ok", "note", "bad"]

_LIMIT_S = 120.0  # of a job; a backend that is built first has BUILD_LIMIT_S
_FUTEX_WAITV = 449
_PR_SET_PDEATHSIG = 1
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FILES = 1024  # descriptors that the launcher of a large host needs
_AUTOGROUPS = Path("/proc/sys/kernel/sched_autogroup_enabled")
_AUTOGROUPS_STARVE = re.compile(r"6\.18\.")
_CGROUPS = Path("/proc/self/cgroup")
_FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "numpy", "h5py", "tensorboard")


@dataclass
class Finding:
    """One line. `bad`: something does not work; `note`: something is slower or missing, which may
    be as the user wants it. advice: what to do; empty if nothing."""

    level: Level
    subject: str
    text: str
    advice: str = ""

    def line(self) -> str:
        return f"{self.level:4}  {self.subject}: {self.text}" + (
            f"; {self.advice}" if self.advice else ""
        )


@dataclass
class Launcher:
    """The command `regroup` that is examined."""

    path: str

    def run(self, *words: str, limit_s: float = _LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Runs it with these arguments. Raises TimeoutExpired."""
        return _run([self.path, *words], limit_s)


def _run(command: list[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    """Runs the command in a session of its own, so that only this process gets Ctrl-C; it ends with
    this process. Raises TimeoutExpired."""
    libc = ctypes.CDLL(None)
    # A signal that came within Popen() would leave a process that nobody knows.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=prepare,
        )
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            out, err = process.communicate(timeout=limit_s)
        except BaseException:
            _end(process)
            raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a launcher, which ends its members. Waits no longer than 20 s, as for a program that
    hangs in a driver."""
    process.send_signal(signal.SIGTERM)
    for last, limit_s in ((False, 15), (True, 5)):
        try:
            process.wait(timeout=limit_s)
            return
        except subprocess.TimeoutExpired:
            if not last:
                process.kill()


def _interrupt(number: int, _: object) -> None:
    raise KeyboardInterrupt(number)


def main(arguments: list[str]) -> int:
    """Prints the findings as they are made. Returns 1 if one is bad, 2 for wrong arguments."""
    launcher, *words = arguments or [""]
    if not launcher or words not in ([], ["--json"]):
        print("usage: python3 -m regroup._doctor LAUNCHER [--json]", file=sys.stderr)
        return 2
    for number in _ENDING:
        signal.signal(number, _interrupt)
    found: list[Finding] = []
    try:
        for finding in examine(Launcher(launcher)):
            found.append(finding)
            if not words:
                print(finding.line(), flush=True)
    except KeyboardInterrupt as interrupt:
        return 128 + int(interrupt.args[0])
    if words:
        print(json.dumps([asdict(each) for each in found], indent=1))
    bad = sum(each.level == "bad" for each in found)
    if not words:
        print(f"\n{bad} of {len(found)} lines need attention" if bad else "\nnothing is wrong")
    return 1 if bad else 0


def examine(launcher: Launcher) -> Iterator[Finding]:
    """Yields a finding for each subject. An examination that fails itself is a bad one."""
    checks: tuple[tuple[str, Callable[[Launcher], Iterator[Finding]]], ...] = (
        ("regroup", check_versions),
        ("allocation", check_allocation),
        ("kernel", check_kernel),
        ("sessions", check_sessions),
        ("limits", check_limits),
        ("GPUs", check_gpus),
        ("packages", check_packages),
        ("torch", check_torch),
        ("threads", check_threads),
        ("ranks", check_ranks),
        ("training", check_training),
    )
    for subject, check in checks:
        try:
            yield from check(launcher)
        except subprocess.TimeoutExpired as error:
            command = shlex.join(map(str, error.cmd))
            yield Finding("bad", subject, f"no result within {error.timeout:g} s: {command}")
        except Exception as error:
            yield Finding("bad", subject, f"{type(error).__name__}: {error}")


def check_versions(launcher: Launcher) -> Iterator[Finding]:
    from regroup import _native

    done = launcher.run("--version", limit_s=20)
    command = done.stdout.strip().rpartition(" ")[2]
    python = f"Python {platform.python_version()}, {sys.executable}"
    if done.returncode != 0 or command != _native.__version__:
        text = f"the command {launcher.path} is {command or 'broken'}, the package in {python} is "
        yield Finding(
            "bad", "regroup", text + _native.__version__, "install both from the same release"
        )
        return
    yield Finding("ok", "regroup", f"command and package are {command} ({python})")


def check_allocation(launcher: Launcher) -> Iterator[Finding]:
    done = launcher.run("allocation", limit_s=60)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        yield Finding("bad", "allocation", _last_line(done.stderr) or "nothing was printed")
        return
    detected = json.loads(launcher.run("allocation", "--json", limit_s=60).stdout)
    for warning in detected["warnings"]:
        yield Finding("note", "allocation", str(warning))
    if detected["allocator"] == "none":
        yield Finding("ok", "allocation", f"no allocator; {lines[-1]}")
        return
    hosts, slots = len(detected["hosts"]), detected["slots"]
    held = f"{_counted(slots, 'slot')} on {_counted(hosts, 'host')}"
    text = f"{detected['allocator']} job {detected['job']}: {held}"
    yield Finding("ok", "allocation", text)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def check_kernel(_: Launcher) -> Iterator[Finding]:
    release = platform.release()
    if _watches_deaths():
        yield Finding("ok", "kernel", f"{release} tells of a member's death at once")
    else:
        text = f"{release} has no futex_waitv (Linux 5.16): deaths are noticed some ms later"
        yield Finding("note", "kernel", text)
    if _reads_others():
        yield Finding("ok", "large messages", "are copied once, from process to process")
    else:
        text = "are copied twice: process_vm_readv() is forbidden here"
        advice = "allow the system call ptrace in the container, or set kernel.yama.ptrace_scope=0"
        yield Finding("note", "large messages", text, advice)


def check_sessions(_: Launcher) -> Iterator[Finding]:
    """Measured with Linux 6.18.44: in one cgroup, or without autogroups, nobody waits."""
    with contextlib.suppress(OSError):
        autogroups = _AUTOGROUPS.read_text().strip() == "1"
        if autogroups and _AUTOGROUPS_STARVE.match(platform.release()) and _in_root_cgroup():
            text = f"in Linux {platform.release()} sessions with more ranks than cores may keep "
            text += "others, such as an agent, from the cores for 30 s"
            yield Finding("note", "sessions", text, "sysctl kernel.sched_autogroup_enabled=0")


def check_limits(_: Launcher) -> Iterator[Finding]:
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= files < _FILES:
        text = f"at most {files} open files, {_FILES} expected"
        yield Finding("note", "limits", text, "raise ulimit -Hn")
    memory, where = _memory()
    yield Finding("ok", "memory", f"{memory / 2**30:.1f} GiB ({where})")
    own = os.environ.get("XDG_RUNTIME_DIR") or ""  # passed over if it is no folder
    if os.path.isdir(own) and not os.access(own, os.W_OK | os.X_OK):
        text = f"XDG_RUNTIME_DIR={own} cannot be written"
        yield Finding("note", "folders", text, "unset it, or set it to a folder of your own")


def check_gpus(_: Launcher) -> Iterator[Finding]:
    program = shutil.which("nvidia-smi")
    if program is None:
        yield Finding("ok", "GPUs", "none (nvidia-smi is not installed)")
        return
    done = _run([program, "-L"], limit_s=60)
    lines = [line for line in done.stdout.splitlines() if line.startswith("GPU ")]
    if done.returncode != 0:
        text = _last_line(done.stderr) or _last_line(done.stdout)
        yield Finding("bad", "GPUs", f"nvidia-smi: {text}", "ask who administers the driver")
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f", CUDA_VISIBLE_DEVICES={visible!r}"
    yield Finding("ok", "GPUs", f"{len(lines)}{hidden}")


def check_packages(_: Launcher) -> Iterator[Finding]:
    versions = []
    for name in _FRAMEWORKS:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    yield Finding("ok", "packages", ", ".join(versions) or "no framework is installed")


def check_torch(_: Launcher) -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        return
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        text = "TORCH_DEVICE_BACKEND_AUTOLOAD=0: torch does not know the backend regroup"
        advice = "unset it, or import regroup_torch and call regroup_torch.register()"
        yield Finding("note", "torch backend", text, advice)
    from regroup import _torch_backend

    state, path = _torch_backend.binary_state()
    if state == "missing":
        advice = "install g++ 12 or newer, or set CXX"
        text = "in Python, which is slower: not built, and there is no C++ compiler"
        yield Finding("note", "torch backend", text, advice)
    elif state == "to build":
        yield Finding("ok", "torch backend", "is built by the first process group, in 20 s")
    else:
        yield Finding("ok", "torch backend", f"{path}")


def check_threads(launcher: Launcher) -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        return
    program = "import torch; print('threads', torch.get_num_threads())"
    done = launcher.run("-np", "1", sys.executable, "-c", program)
    found = re.search(r"threads (\d+)", done.stdout)  # other text may stand before it
    if done.returncode != 0 or found is None:
        yield Finding("bad", "threads", f"a job of one rank failed: {_cause(done.stderr)}")
        return
    count = found[1]
    set_by = os.environ.get("OMP_NUM_THREADS")
    how = "as OMP_NUM_THREADS says" if set_by else "the cores it is bound to"
    yield Finding("ok", "threads", f"a rank computes with {count} of torch ({how})")


def check_ranks(launcher: Launcher) -> Iterator[Finding]:
    """Times an all-reduce of two ranks over each backend, and compares the results."""
    if importlib.util.find_spec("torch") is None:
        done = launcher.run("--oversubscribe", "-np", "2", "true")
        level: Level = "ok" if done.returncode == 0 else "bad"
        yield Finding(level, "ranks", _last_line(done.stderr) or "a job of two ranks runs")
        return
    words = ("--oversubscribe", "-np", "2", sys.executable, "-m", "regroup._doctor_job", "ranks")
    from regroup import _torch_backend

    built = _torch_backend.binary_state()[0] == "there"
    done = launcher.run(*words, limit_s=_LIMIT_S if built else _torch_backend.BUILD_LIMIT_S)
    result = _result_of(done)
    if result is None:
        yield Finding("bad", "ranks", f"two ranks of torch failed: {_cause(done.stderr)}")
        return
    for size, ours, gloo in result["all_reduce"]:
        text = f"all_reduce of {size} in {ours:.0f} us (median), Gloo {gloo:.0f} us"
        yield Finding("ok", "ranks", text)
    if not result["equal"]:
        yield Finding("bad", "ranks", "the sums of regroup and Gloo differ")


def check_training(launcher: Launcher) -> Iterator[Finding]:
    """Trains a small model with one member, and with two of which one is killed."""
    if importlib.util.find_spec("torch") is None:
        return
    digests = []
    for members, fault in ((1, ""), (2, "kill")):
        words = ["--oversubscribe", "-np", "1:2", "--initial-size", str(members)]
        words += ["--shards", "4", "--seed", "1", "--replace", "never"]
        words += [sys.executable, "-m", "regroup._doctor_job", "training", fault]
        done = launcher.run(*words)
        result = _result_of(done)
        if result is None:
            what = f"a job of {members} failed with {done.returncode}: {_cause(done.stderr)}"
            yield Finding("bad", "training", what)
            return
        digests.append(result["weights"])
        if fault and (result["generation"] < 2 or result["members"] != 1):
            yield Finding("bad", "training", f"no member was lost: {_cause(done.stderr)}")
            return
    if digests[0] != digests[1]:
        text = f"the weights of one member and of two differ ({digests[0]}, {digests[1]})"
        yield Finding("bad", "training", text, "please report this with the lines above")
        return
    text = "one member, and two of which one is killed, give bit-identical weights"
    yield Finding("ok", "training", text)


def _result_of(done: subprocess.CompletedProcess[str]) -> dict | None:
    """The line of JSON that a rank of _doctor_job has printed."""
    found = re.findall(r"\{.*\}", done.stdout)  # a tag or a time may stand before it
    return json.loads(found[-1]) if done.returncode == 0 and found else None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _cause(errors: str) -> str:
    """The last exception of a rank, if there is one, and what the launcher said last."""
    raised = re.findall(r"^.*?(\w+(?:Error|Exception|Refused)\b.*)$", errors, re.M)
    last = _last_line(errors)
    return f"{raised[-1].strip()}; {last}" if raised and raised[-1].strip() not in last else last


def _in_root_cgroup() -> bool:
    """Whether no cgroup weighs this process: only then is its session an autogroup."""
    lines = [line.split(":", 2) for line in _CGROUPS.read_text().splitlines()]
    first = [path for _, names, path in lines if "cpu" in names.split(",")]
    return (first or [path for _, names, path in lines if not names]) == ["/"]


def _watches_deaths() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(_FUTEX_WAITV, None, 0, 0, None, 0)
    return ctypes.get_errno() == errno.EINVAL  # it exists; ENOSYS or, in containers, EPERM: not


# The child reads its parent: Yama lets a process read its own children, which ranks are not.
_READS_PARENT = """
import ctypes, os
class Memory(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]
libc = ctypes.CDLL(None, use_errno=True)
room = ctypes.c_uint64(0)
here = Memory(ctypes.addressof(room), 8)
there = Memory(int(os.environ["ADDRESS"]), 8)
one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
libc.process_vm_readv(os.getppid(), ctypes.byref(here), one, ctypes.byref(there), one, none)
print("read", room.value)
"""


def _reads_others() -> bool:
    """Whether a process may read another one of the same user that is not its child."""
    word = ctypes.c_uint64(4711)
    done = subprocess.run(
        [sys.executable, "-c", _READS_PARENT],
        env={**os.environ, "ADDRESS": str(ctypes.addressof(word))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.split() == ["read", str(word.value)]


def _memory() -> tuple[int, str]:
    """Bytes that a job may use here, and which limit that is: the lowest of the control groups that
    this process is in."""
    least = total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        entries = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        entries = []
    for entry in entries:
        _, controllers, path = entry.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup/memory" if controllers else "/sys/fs/cgroup")
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        folder = root / path.strip("/")
        for group in (folder, *folder.parents):
            if root not in (group, *group.parents):
                break
            with contextlib.suppress(OSError, ValueError):
                least = min(least, int((group / name).read_text()))
    if least < total:
        return least, f"limit of the control group, of {total / 2**30:.1f} GiB"
    return total, "of this machine"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
