"""Holds the layers of docs/design/architecture.md: who may include whom, and where special things
may stand.

usage: layers_test.py ROOT | --self-test
A file belongs to the longest folder named in MAY_INCLUDE that it lies under; files elsewhere are
refused, so that a new folder first says what it may include.
"""

import pathlib
import re
import tempfile

from lint.command import main

BOTTOM = ["base", "proto", "shmem"]
MEMBERSHIP = ["membership", "membership/agent", "membership/coordinator"]
COLLECTIVE = [
    "collective",
    "collective/backends",
    "collective/cuda",
    "collective/group",
    "collective/mpi",
    "collective/nccl",
    "collective/net",
    "collective/p2p",
    "collective/ps",
    "collective/reduce",
    "collective/shm",
    "collective/ucx",
]
TRAINING = [*BOTTOM, *COLLECTIVE, "checkpoint", *MEMBERSHIP, "elastic"]
ROOMS = (
    "spec",
    "metrics",
    "process",
    "transport",
    "pmi",
    "preempt",
    "agent",
    "alloc",
    "topology",
    "placement",
    "lease",
)
BELOW_JOB = [f"launcher/{room}" for room in ROOMS]
LAUNCHER = [
    *BELOW_JOB,
    "launcher/asio",
    "launcher/scheduler",
    "launcher/job",
    "launcher/cli",
    "membership/catchup",
    "checkpoint/writer",
]
MAY_INCLUDE = {  # besides itself
    "base": [],
    "proto": ["base"],
    "shmem": ["base", "proto"],
    "collective": [*BOTTOM],
    "collective/reduce": [*BOTTOM, "collective"],
    "collective/ps": [*BOTTOM, "collective", "collective/reduce"],
    "collective/cuda": [*BOTTOM, "collective", "collective/reduce"],
    "collective/nccl": [*BOTTOM, "collective", "collective/cuda", "collective/reduce"],
    "collective/shm": [*BOTTOM, "collective", "collective/reduce"],
    "collective/net": [*BOTTOM, "collective", "collective/reduce"],
    "collective/p2p": [*BOTTOM, "collective", "collective/net", "collective/reduce"],
    "collective/ucx": [*BOTTOM, "collective", "collective/net", "collective/reduce"],
    "collective/mpi": [*BOTTOM, "collective"],
    "collective/backends": [
        *BOTTOM,
        "collective",
        "collective/cuda",
        "collective/mpi",
        "collective/nccl",
        "collective/shm",
        "collective/ucx",
    ],
    "collective/group": [*BOTTOM, "collective", "collective/backends", "collective/ucx"],
    "checkpoint": [*BOTTOM],
    "checkpoint/hdf5": [*BOTTOM, "checkpoint"],
    "membership": [*BOTTOM],
    "membership/agent": [*BOTTOM, "membership"],
    "membership/coordinator": [*BOTTOM, "membership"],
    "elastic": [*BOTTOM, *COLLECTIVE, "checkpoint", *MEMBERSHIP],
    "launcher/asio": [],
    "launcher/spec": [*BOTTOM],
    "launcher/metrics": [*BOTTOM],
    "launcher/process": [*BOTTOM, "launcher/metrics", "launcher/spec"],
    "launcher/transport": [*BOTTOM],
    "launcher/pmi": [*BOTTOM, "launcher/process", "launcher/transport"],
    "launcher/preempt": [*BOTTOM, "launcher/process", "launcher/spec"],
    "launcher/agent": [
        *BOTTOM,
        "launcher/metrics",
        "launcher/pmi",
        "launcher/preempt",
        "launcher/process",
        "launcher/spec",
        "launcher/transport",
    ],
    "launcher/alloc": [*BOTTOM, "launcher/process", "launcher/spec"],
    "launcher/topology": [*BOTTOM, "launcher/spec"],
    "launcher/placement": [
        *BOTTOM,
        "launcher/alloc",
        "launcher/pmi",
        "launcher/process",
        "launcher/spec",
        "launcher/topology",
    ],
    "launcher/lease": [
        *BOTTOM,
        "launcher/agent",
        "launcher/process",
        "launcher/spec",
        "launcher/transport",
    ],
    "membership/catchup": [*BOTTOM, "launcher/transport", "membership/agent"],
    "checkpoint/writer": [*BOTTOM, "launcher/process", "launcher/spec"],
    "launcher/scheduler": [*BOTTOM, *BELOW_JOB],
    "launcher/job": [
        *BOTTOM,
        *MEMBERSHIP,
        "membership/catchup",
        "checkpoint/writer",
        "collective/ps",  # the memory of a parameter server
        *BELOW_JOB,
        "launcher/scheduler",
    ],
    "launcher/cli": [*BOTTOM, *BELOW_JOB, "launcher/job"],
    "tools": [*TRAINING, *LAUNCHER, "checkpoint/hdf5"],
    "python": [
        *BOTTOM,
        "collective",
        "collective/group",
        "collective/ps",
        "checkpoint",
        "elastic",
    ],
    "tests": [*TRAINING, *LAUNCHER, "checkpoint/hdf5", "tools", "python", "examples/cpp"],
    "examples/cpp": TRAINING,
}
PUBLIC = {  # the layer of each header of include/regroup, which includes no other folder
    "types": "base",
    "status": "base",
    "operation": "collective",
    "communicator": "collective",
    "mpi": "collective",
    "point_to_point": "collective",
    "checkpoint": "checkpoint",
    "optimizer": "elastic",
    "ps": "collective/ps",
    "session": "elastic",
    "state": "elastic",
}
HEADER = re.compile(r"(?:include/)?regroup/(\w+)\.h")
CODE = [*TRAINING, *LAUNCHER, "checkpoint/hdf5", "tools", "python", "examples/cpp"]
PURE = "membership holds pure state machines: no sockets, no threads"
OUTSIDE = [  # (pattern of an include of somebody else's header, folders where it is refused, why)
    (r"boost/|openssl/", [*TRAINING, "python", "examples/cpp"], "launcher side only"),
    (r"(hdf5|H5\w*)\.h|google/protobuf/|grpc",
     [f for f in CODE if f not in ("checkpoint/hdf5", "tools")],
     "HDF5 lives in checkpoint/hdf5 and tools only"),
    (r"(Python|pybind11/.*|nanobind/.*)", [f for f in CODE if f != "python"],
     "lives in python/ only"),
    (r"sys/(socket|un|epoll)\.h|thread$|pthread\.h", MEMBERSHIP, PURE),
]  # fmt: skip
WORDS = [  # (pattern in code, the only files of CODE where it may stand, why)
    (r"\b(secure_)?getenv\s*\(", ["launcher/cli/options.cc", "elastic/options.cc"],
     "the environment is read in two files"),
    (r"\b_mm\d*_(\w+_)?stream_\w+|__builtin_nontemporal_store|\bv?movnt\w+|\bstnp\b",
     ["base/cpu.h", "collective/reduce/optimizer_kernels.cc"],
     "non-temporal stores are those of base/cpu.h and of the optimizer's kernels"),
    (r"\bstream_line\s*\(", ["base/cpu.h", "collective/reduce/publish.h"],
     "stores past the cache go through publish.h, with a fence behind them"),
    (r"<\w*intrin\.h>|<arm_\w+\.h>|\b__(x86_64|aarch64)__\b|\b_mm_pause\b",
     ["base/cpu.h", "base/crc32c.cc", "collective/reduce/kernels.cc",
      "collective/reduce/optimizer_kernels.cc"],
     "what one processor has and another has not is in base/cpu.h, or in a table of kernels"),
]  # fmt: skip
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def folder_of(path: str) -> str | None:
    if match := HEADER.fullmatch(path):
        return PUBLIC.get(match[1])
    return max((f for f in MAY_INCLUDE if path.startswith(f + "/")), key=len, default=None)


def violations_in(path: str, text: str) -> list[str]:
    mine = folder_of(path)
    if mine is None:
        return [f"{path}: lies in no known layer; add its folder to MAY_INCLUDE"]
    found, text = [], COMMENT.sub(" ", text)
    for quote, name in INCLUDE.findall(text):
        theirs = folder_of(name)
        if path.startswith("include/") and quote == '"' and not name.startswith("regroup/"):
            found.append(f"{path}: includes {name}, which is not installed")
            continue
        # An example is built alone, against the installed tree, and the torch backend on the
        # user's machine: they name their files from their own folder.
        alone = (
            mine == "examples/cpp"
            or path.endswith("_generated.h")
            or path.startswith("python/regroup/_torch/")
        )
        if quote == '"' and theirs is None and not alone:
            found.append(f'{path}: includes "{name}", which is no path from the repository root')
        if theirs not in (None, mine, *MAY_INCLUDE[mine]):
            found.append(
                f"{path}: includes {name}, but {mine} may include "
                f"{MAY_INCLUDE[mine] or 'nothing of ours'}"
            )
        found += [
            f"{path}: includes {name}: {why}"
            for p, where, why in OUTSIDE
            if mine in where and re.match(p, name)
        ]
    for pattern, where, why in WORDS:
        if mine in CODE and path not in where and (match := re.search(pattern, text)):
            found.append(f"{path}: {match[0]}: {why}")
    return found


def violations(root: pathlib.Path) -> list[str]:
    found = []
    for top in sorted(
        p for p in root.iterdir() if p.is_dir() and not p.name.startswith((".", "build", "dist"))
    ):
        for path in sorted(p for p in top.rglob("*") if p.suffix in (".h", ".cc") and p.is_file()):
            found += violations_in(path.relative_to(root).as_posix(), path.read_text())
    return found


GOOD = {
    "base/a.h": "#include <string>\n// #include <boost/asio.hpp>, getenv(X): harmless here\n",
    "proto/wire_generated.h": '#include "flatbuffers/flatbuffers.h"\n',
    "base/cpu.h": "#if defined(__x86_64__)\nvoid f(int* p) { _mm_stream_si32(p, 1); }\n",
    "collective/reduce/publish.h": '#include "base/cpu.h"\n'
    "void f(int* p) { base::stream_line(p, p); }\n",
    "include/regroup/session.h": '#include "regroup/status.h"\n',
    "elastic/options.cc": '#include "membership/m.h"\nauto v = getenv("X");\n',
    "launcher/process/loop.cc": '#include "base/a.h"\n#include <boost/asio.hpp>\n',
    "launcher/process/tls.cc": "#include <openssl/ssl.h>\n",
    "launcher/job/run.cc": '#include "membership/m.h"\n#include "launcher/process/loop.h"\n',
    "python/module.cc": '#include <nanobind/nanobind.h>\n#include "regroup/session.h"\n',
    "tests/base/a_test.cc": '#include "launcher/process/x.h"\nauto v = getenv("X");\n',
}  # fmt: skip
BAD = [
    ("base/a.cc", '#include "collective/c.h"'),
    ("base/a.cc", "#include <collective/c.h>"),
    ("base/a.cc", "#include <boost/asio.hpp>"),
    ("base/a.cc", 'auto v = std::getenv("X");'),
    ("base/a.cc", '#include "status.h"'),
    ("collective/c.cc", '#include "membership/m.h"'),
    ("collective/shm/x.cc", "void f(float* p, __m512 v) { _mm512_stream_ps(p, v); }"),
    ("collective/shm/x.cc", 'asm("movntdq %xmm0, (%rax)");'),
    ("collective/shm/x.cc", "void f(int* p) { base::stream_line(p, p); }"),
    ("collective/shm/x.cc", "#ifdef __x86_64__"),
    ("elastic/s.cc", "#include <immintrin.h>"),
    ("membership/m.cc", '#include "regroup/session.h"'),
    ("membership/m.cc", "#include <thread>"),
    ("elastic/s.cc", '  #  include "launcher/process/x.h"'),
    ("elastic/s.cc", "#include <openssl/ssl.h>"),
    ("elastic/s.cc", "#include <hdf5.h>"),
    ("launcher/process/x.cc", '#include "membership/m.h"'),
    ("launcher/process/x.cc", "#include <H5Fpublic.h>"),
    ("launcher/cli/main.cc", '#include "regroup/session.h"'),
    ("tools/bench.cc", '#include "python/module.h"'),
    ("elastic/s.cc", "#include <Python.h>"),
    ("include/regroup/status.h", '#include "base/fd.h"'),
    ("include/regroup/status.h", '#include "regroup/session.h"'),
    ("include/regroup/new.h", "int x;"),
    ("newfolder/x.cc", "int x;"),
]


def self_test() -> None:
    """A clean tree passes; each violation put into it is refused, and nothing else is."""
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for path, text in GOOD.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        assert violations(root) == [], violations(root)
        for path, text in BAD:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text + "\n")
            found = violations(root)
            assert len(found) == 1 and found[0].startswith(path + ":"), (path, text, found)
            (root / path).unlink()


if __name__ == "__main__":
    main(__doc__, violations, self_test)
