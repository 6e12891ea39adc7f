"""A rival of `regroup bench`: the same operations by Gloo, through torch.distributed.

usage: rival_gloo.py SOCKET RANK RANKS STORE. It executes the same lines as rival_mpi.c. Its
all-reduce, reduce and broadcast are in place, as torch has them only in place.
"""

import socket
import sys
import time

import torch
import torch.distributed as dist

TYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
}
OPS = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
}
REDUCING = ("allreduce", "reduce", "reduce_scatter")
CHUNK = 1 << 20  # elements made or checked at a time


def hashes(begin: int, end: int, rank: int) -> torch.Tensor:
    """The hashes of pattern.h, as 64-bit integers."""
    index = torch.arange(begin, end, dtype=torch.int64) + (rank * 0x85EBCA6B & 0xFFFFFFFF)
    return ((index & 0xFFFFFFFF) * 0x9E3779B1 & 0xFFFFFFFF) >> 18


class Rival:
    def __init__(self, rank: int, ranks: int):
        self.rank, self.ranks = rank, ranks

    def setup(self, operation: str, dtype: str, op: str, root: str, size: str) -> str:
        if dtype not in TYPES or op not in OPS:
            return f"no Gloo has no {operation} of {dtype} by {op}"
        self.operation, self.dtype, self.op, self.root = operation, TYPES[dtype], op, int(root)
        self.reduce_op = OPS[op]
        self.mask = 4095 if self.dtype.itemsize >= 4 else 63
        count, ranks = int(size) // self.dtype.itemsize, self.ranks
        many = {"alltoall": (ranks, ranks), "allgather": (1, ranks), "gather": (1, ranks)}
        many |= {"reduce_scatter": (ranks, 1), "scatter": (ranks, 1)}
        ins, outs = many.get(operation, (1, 1))
        self.count = count
        self.input = torch.zeros(ins * count, dtype=self.dtype)
        self.output = torch.zeros(outs * count, dtype=self.dtype)
        self.parts_in = list(self.input.split(max(count, 1))) if ins > 1 else [self.input]
        self.parts_out = list(self.output.split(max(count, 1))) if outs > 1 else [self.output]
        self.kept = torch.cat([hashes(i, min(i + CHUNK, len(self.input)), self.rank).to(torch.int16)
                               for i in range(0, max(len(self.input), 1), CHUNK)])  # fmt: skip
        try:
            self.run()
        except (RuntimeError, NotImplementedError, ValueError) as error:
            return f"no {str(error).splitlines()[0]}"
        return "ok"

    def values(self, found: torch.Tensor, iteration: int) -> torch.Tensor:
        """Makes values of hashes, as pattern_value() does."""
        if self.operation not in REDUCING or self.op in ("sum", "min", "max"):
            return (found & self.mask) + (iteration & 7)
        if self.op == "prod":
            return 1 + (((found + iteration) & 7) == 0).to(found.dtype)
        return (found + iteration) & 127

    def refill(self, iteration: int) -> None:
        if self.operation == "barrier" or (
            self.operation in ("broadcast", "scatter") and self.rank != self.root
        ):
            return
        iteration %= 128  # patterns repeat after 128, and hashes are kept in 16 bits
        for i in range(0, len(self.input), CHUNK):
            self.input[i : i + CHUNK] = self.values(self.kept[i : i + CHUNK], iteration).to(
                self.dtype
            )

    def run(self) -> None:
        match self.operation:
            case "allreduce":
                dist.all_reduce(self.input, self.reduce_op)
            case "reduce":
                dist.reduce(self.input, self.root, self.reduce_op)
            case "reduce_scatter":
                dist.reduce_scatter_tensor(self.output, self.input, self.reduce_op)
            case "allgather":
                dist.all_gather_into_tensor(self.output, self.input)
            case "gather":
                dist.gather(
                    self.input, self.parts_out if self.rank == self.root else None, self.root
                )
            case "scatter":
                dist.scatter(
                    self.output, self.parts_in if self.rank == self.root else None, self.root
                )
            case "alltoall":
                dist.all_to_all_single(self.output, self.input)
            case "broadcast":
                dist.broadcast(self.input, self.root)
            case "sendrecv":
                receive = dist.irecv(self.output, (self.rank - 1) % self.ranks)
                dist.send(self.input, (self.rank + 1) % self.ranks)
                receive.wait()
            case _:
                dist.barrier()

    def wrong_part(self, found: torch.Tensor, source: int, index: int, iteration: int) -> int:
        """Returns how many elements of `found` differ from the input of rank `source` from element
        `index` on, or from the reduction over all ranks if `source` is -1."""
        wrong = 0
        for at in range(0, len(found), CHUNK):
            end = min(at + CHUNK, len(found))
            want = self.values(hashes(index + at, index + end, max(source, 0)), iteration)
            for rank in range(1, self.ranks if source < 0 else 1):
                more = self.values(hashes(index + at, index + end, rank), iteration)
                combine = {"sum": torch.add, "prod": torch.mul, "min": torch.minimum,
                           "max": torch.maximum,
                           "band": torch.bitwise_and, "bor": torch.bitwise_or}[self.op]  # fmt: skip
                want = combine(want, more)
            wrong += int((found[at:end] != want.to(self.dtype)).sum())
        return wrong

    def verify(self, iteration: int) -> int:
        self.output.fill_(-1 if self.dtype != torch.uint8 else 255)
        if self.operation == "broadcast":
            self.input.fill_(1)
        self.refill(iteration)
        dist.barrier()
        self.run()
        mine = self.count * self.rank
        match self.operation:
            case "allreduce":
                return self.wrong_part(self.input, -1, 0, iteration)
            case "reduce":
                return (
                    self.wrong_part(self.input, -1, 0, iteration) if self.rank == self.root else 0
                )
            case "reduce_scatter":
                return self.wrong_part(self.output, -1, mine, iteration)
            case "scatter":
                return self.wrong_part(self.output, self.root, mine, iteration)
            case "broadcast":
                return self.wrong_part(self.input, self.root, 0, iteration)
            case "sendrecv":
                return self.wrong_part(self.output, (self.rank - 1) % self.ranks, 0, iteration)
            case "gather" if self.rank != self.root:
                return 0
            case "gather" | "allgather" | "alltoall":
                index = mine if self.operation == "alltoall" else 0
                return sum(
                    self.wrong_part(part, r, index, iteration)
                    for r, part in enumerate(self.parts_out)
                )
        return 0

    def time(self, first: int, warmups: int, count: int) -> list[int]:
        took = []
        for i in range(warmups + count):
            self.refill(first + i)
            dist.barrier()
            began = time.perf_counter_ns()
            self.run()
            took.append(time.perf_counter_ns() - began)
        return took[warmups:]


def main() -> None:
    path, rank, ranks, store = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    stream = connection.makefile("rw", encoding="ascii", errors="replace", newline="\n")
    print(f"rank {rank} of {ranks}", file=stream, flush=True)
    rival = Rival(rank, ranks)
    for line in stream:
        match line.split():
            case ["setup", *words]:
                print(rival.setup(*words), file=stream, flush=True)
            case ["verify", iteration]:
                print("wrong", rival.verify(int(iteration)), file=stream, flush=True)
            case ["time", *numbers]:
                print("times", *rival.time(*map(int, numbers)), file=stream, flush=True)
            case _:
                dist.destroy_process_group()
                return


if __name__ == "__main__":
    main()
