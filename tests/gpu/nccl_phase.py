"""What the NCCL of this machine's torch has and does on one GPU: `nccl_phase.py [--json FILE]`.

Its version and the functions of each version; the time that communicators of one rank take to be
made and aborted, with and without queued work; what two ranks on one GPU get.
"""

import argparse
import ctypes
import json
import multiprocessing
import queue
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
from common import summarize  # noqa: E402

# Functions by the version that has them first, as headers and symbol tables of the wheels say.
FUNCTIONS = {
    "2.14": ["ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclCommAbort"],
    "2.23": ["ncclCommInitRankScalable"],
    "2.27": ["ncclCommShrink"],
    "2.28": ["ncclCommRevoke", "ncclAlltoAll"],
    "2.29": ["ncclCommGrow", "ncclCommSuspend", "ncclCommMemStats"],
    "2.32": ["ncclSetEncryption"],
}
FLOAT, SUM = 7, 0
ROUNDS = 20
OPERATIONS = 64  # queued when a communicator is aborted
ELEMENTS = 16 << 20


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def library() -> ctypes.CDLL:
    import torch

    torch.cuda.init()
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = {line.split()[-1] for line in maps if "libnccl.so" in line}  # torch's
    return ctypes.CDLL(loaded.pop() if loaded else "libnccl.so.2")


class Nccl:
    """Calls return NCCL's result; 0 is success."""

    def __init__(self) -> None:
        self.library = library()
        self.library.ncclGetErrorString.restype = ctypes.c_char_p

    def version(self) -> int:
        found = ctypes.c_int()
        assert self.library.ncclGetVersion(ctypes.byref(found)) == 0
        return found.value

    def new_id(self) -> bytes:
        found = UniqueId()
        assert self.library.ncclGetUniqueId(ctypes.byref(found)) == 0
        return bytes(bytearray(found))

    def make(self, unique: bytes, ranks: int, rank: int) -> tuple[int, ctypes.c_void_p]:
        comm = ctypes.c_void_p()
        init = self.library.ncclCommInitRank
        init.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
        given = UniqueId.from_buffer_copy(unique)
        return init(ctypes.byref(comm), ranks, given, rank), comm

    def name(self, result: int) -> str:
        return self.library.ncclGetErrorString(result).decode()


def milliseconds_since(began: float) -> float:
    return (time.perf_counter() - began) * 1e3


def summary(milliseconds: list[float]) -> dict:
    return summarize(milliseconds).to_json()


def alone(nccl: Nccl) -> dict:
    import torch

    made, aborted, busy = [], [], []
    data = torch.ones(ELEMENTS, device="cuda")
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointer, count = ctypes.c_void_p(data.data_ptr()), ctypes.c_size_t(ELEMENTS)
    for number in range(ROUNDS):
        unique = nccl.new_id()
        began = time.perf_counter()
        result, comm = nccl.make(unique, 1, 0)
        made.append(milliseconds_since(began))
        assert result == 0, nccl.name(result)
        for _ in range(OPERATIONS if number % 2 else 0):
            result = nccl.library.ncclAllReduce(pointer, pointer, count, FLOAT, SUM, comm, stream)
            assert result == 0, nccl.name(result)
        began = time.perf_counter()
        nccl.library.ncclCommAbort(comm)
        (busy if number % 2 else aborted).append(milliseconds_since(began))
        torch.cuda.synchronize()
    return {
        "make ms": summary(made),
        "abort ms": summary(aborted),
        f"abort with {OPERATIONS} operations of 64 MiB queued, ms": summary(busy),
    }


def one_of_two(rank: int, given: multiprocessing.Queue, told: multiprocessing.Queue) -> None:
    nccl = Nccl()
    unique = nccl.new_id() if rank == 0 else given.get(timeout=30)
    if rank == 0:
        given.put(unique)
    began = time.perf_counter()
    result, _ = nccl.make(unique, 2, rank)
    last = nccl.library.ncclGetLastError
    last.restype, last.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    text = (last(None) or b"").decode()
    told.put((rank, result, nccl.name(result), text, milliseconds_since(began)))


def two_on_one_gpu() -> list:
    """What each of two ranks on one GPU gets when it makes their communicator."""
    context = multiprocessing.get_context("spawn")
    given, told = context.Queue(), context.Queue()
    ranks = [context.Process(target=one_of_two, args=(rank, given, told)) for rank in (0, 1)]
    for one in ranks:
        one.start()
    seen = []
    try:
        for _ in ranks:
            seen.append(told.get(timeout=30))
    except queue.Empty:
        seen.append("no answer within 30 s")
    for one in ranks:
        one.join(1)
        one.kill()
        one.join(10)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where the figures go")
    args = parser.parse_args()
    nccl = Nccl()
    results: dict = {
        "version": nccl.version(),
        "functions": {
            name: hasattr(nccl.library, name) for names in FUNCTIONS.values() for name in names
        },
    }
    for name, part in (("one rank", lambda: alone(nccl)), ("two ranks", two_on_one_gpu)):
        results[name] = part()
        print(name, json.dumps(results[name]), flush=True)
        if args.json:
            args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
