"""Every operation of the backend, compared with what each rank computes from the inputs of all.

usage: _operations.py [HOSTS [python]], as a rank of a job; HOSTS: as if the ranks were on so many.
python: expects the group in Python, which has less.
"""

import datetime
import functools
import operator
import os
import sys
from typing import Any

import _without_compiler  # noqa: F401
import torch
import torch.distributed as dist

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
MOVED = (*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint16)
SIZES = (0, 1, 5, 1000)


def input_of(rank: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    """What a rank contributes; every rank can compute that of all. Small values: sums are exact in
    every type."""
    generator = torch.Generator().manual_seed(1000 * count + rank)
    values = torch.randint(1, 4, (count,), generator=generator)
    return (values % 2 == 0) if dtype == torch.bool else values.to(dtype)


def inputs(dtype: torch.dtype, count: int) -> list[torch.Tensor]:
    return [input_of(rank, dtype, count) for rank in range(SIZE)]


def same(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    assert found.dtype == expected.dtype, what
    a, b = found.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8)
    assert torch.equal(a, b), f"rank {RANK}: {what}: {found} is not {expected}"


def reductions(dtype: torch.dtype) -> dict:
    """The reductions of a type, as functions of all inputs."""
    fold = functools.partial(functools.reduce)
    if dtype == torch.bool:
        return {
            dist.ReduceOp.SUM: lambda all_: fold(torch.logical_or, all_),
            dist.ReduceOp.PRODUCT: lambda all_: fold(torch.logical_and, all_),
            dist.ReduceOp.MAX: lambda all_: fold(torch.logical_or, all_),
            dist.ReduceOp.MIN: lambda all_: fold(torch.logical_and, all_),
        }
    out = {
        dist.ReduceOp.SUM: lambda all_: fold(operator.add, all_),
        dist.ReduceOp.PRODUCT: lambda all_: fold(operator.mul, all_),
        dist.ReduceOp.MIN: lambda all_: fold(torch.minimum, all_),
        dist.ReduceOp.MAX: lambda all_: fold(torch.maximum, all_),
    }
    if dtype in INTEGERS:
        out |= {
            dist.ReduceOp.BAND: lambda all_: fold(torch.bitwise_and, all_),
            dist.ReduceOp.BOR: lambda all_: fold(torch.bitwise_or, all_),
            dist.ReduceOp.BXOR: lambda all_: fold(torch.bitwise_xor, all_),
        }
    return out


def check_reductions() -> None:
    for dtype in (*FLOATS, *INTEGERS, torch.bool):
        for op, expect in reductions(dtype).items():
            for count in SIZES:
                what = f"{op} of {dtype}[{count}]"
                expected = expect(inputs(dtype, count))
                data = input_of(RANK, dtype, count)
                dist.all_reduce(data, op=op)
                same(data, expected, f"all_reduce {what}")
                data = input_of(RANK, dtype, count)
                work = dist.all_reduce(data, op=op, async_op=True)
                work.wait()
                assert work.is_completed()
                same(data, expected, f"asynchronous all_reduce {what}")
                data = input_of(RANK, dtype, count)
                dist.reduce(data, SIZE - 1, op=op)
                if RANK == SIZE - 1:
                    same(data, expected, f"reduce {what}")
            whole = [torch.cat([input_of(r, dtype, 6)] * SIZE) for r in range(SIZE)]
            part = torch.empty(6, dtype=dtype)
            dist.reduce_scatter_tensor(part, whole[RANK], op=op)
            same(part, expect(whole)[:6], f"reduce_scatter_tensor {op} of {dtype}")
            part = torch.empty(6, dtype=dtype)
            dist.reduce_scatter(part, list(whole[RANK].chunk(SIZE)), op=op)
            same(part, expect(whole)[:6], f"reduce_scatter {op} of {dtype}")
    data = torch.full((3,), float(RANK))
    dist.all_reduce(data, op=dist.ReduceOp.AVG)
    same(data, torch.full((3,), (SIZE - 1) / 2), "AVG")
    data = torch.full((2,), complex(RANK, 1))
    dist.all_reduce(data)
    same(data, torch.full((2,), complex(sum(range(SIZE)), SIZE)), "SUM of complex64")
    list_ = [input_of(RANK, torch.float32, n) for n in (1, 7)]
    dist.all_reduce_coalesced(list_)
    for found, count in zip(list_, (1, 7), strict=True):
        same(found, sum(inputs(torch.float32, count)), "all_reduce_coalesced")


def check_moves() -> None:
    for dtype in MOVED:
        for count in SIZES:
            what = f"of {dtype}[{count}]"
            everybody = inputs(dtype, count)
            data = everybody[RANK].clone()
            dist.broadcast(data, SIZE - 1)
            same(data, everybody[-1], f"broadcast {what}")
            out = [torch.empty(count, dtype=dtype) for _ in range(SIZE)]
            dist.all_gather(out, everybody[RANK])
            for found, expected in zip(out, everybody, strict=True):
                same(found, expected, f"all_gather {what}")
            if count:
                flat = torch.empty(SIZE * count, dtype=dtype)
                dist.all_gather_into_tensor(flat, everybody[RANK])
                same(flat, torch.stack(everybody).flatten(), f"all_gather_into_tensor {what}")
            out = [torch.empty(count, dtype=dtype) for _ in range(SIZE)]
            dist.gather(everybody[RANK], out if RANK == 0 else None, dst=0)
            if RANK == 0:
                for found, expected in zip(out, everybody, strict=True):
                    same(found, expected, f"gather {what}")
            data = torch.empty(count, dtype=dtype)
            dist.scatter(data, everybody if RANK == 0 else None, src=0)
            same(data, everybody[RANK], f"scatter {what}")
            out = [torch.empty(count, dtype=dtype) for _ in range(SIZE)]
            dist.all_to_all(out, [everybody[RANK]] * SIZE)
            for found, expected in zip(out, everybody, strict=True):
                same(found, expected, f"all_to_all {what}")


def check_splits() -> None:
    """Rank s sends d rows to rank d, so some parts are empty."""
    sent = torch.cat([torch.full((d, 2), 10 * RANK + d) for d in range(SIZE)])
    taken = torch.empty(RANK * SIZE, 2, dtype=sent.dtype)
    dist.all_to_all_single(taken, sent, [RANK] * SIZE, list(range(SIZE)))
    expected = torch.cat([torch.full((RANK, 2), 10 * s + RANK) for s in range(SIZE)])
    same(taken, expected, "all_to_all_single with splits")
    sent = torch.full((SIZE,), float(RANK), requires_grad=True)  # as in a layer of experts
    taken = torch.empty(SIZE, requires_grad=True)
    dist.all_to_all_single(taken, sent, [1] * SIZE, [1] * SIZE)
    assert taken.tolist() == list(range(SIZE))
    taken = torch.empty(SIZE)
    dist.all_to_all_single(taken, sent * 1, [1] * SIZE, [1] * SIZE)
    assert taken.tolist() == list(range(SIZE))
    if IN_PYTHON and SIZE > 1:
        check_refused_splits()
    whole = torch.arange(SIZE) + 10 * RANK
    taken = torch.empty_like(whole)
    dist.all_to_all_single(taken, whole)
    same(taken, torch.tensor([10 * s + RANK for s in range(SIZE)]), "all_to_all_single")


def check_refused_splits() -> None:
    """Ranks that are refused have sent nothing: the next call of all has the right parts."""
    sizes = [2] * SIZE
    sizes[RANK] = 1
    for taken, splits in ((torch.empty(2 * SIZE - 1), sizes), (torch.empty(2), [2])):
        try:
            dist.all_to_all_single(taken, torch.full((2 * SIZE,), -1.0), splits, [2] * SIZE)
            raise AssertionError("expected a refusal")
        except ValueError as error:
            assert "all_to_all_single: expected" in f"{error}", error


def check_layouts() -> None:
    """Columns of a matrix are no dense memory."""
    matrix = torch.zeros(4, 6)
    matrix[:, 1] = RANK + 1
    dist.all_reduce(matrix[:, 1])
    assert (matrix[:, 1] == SIZE * (SIZE + 1) / 2).all() and (matrix[:, 0] == 0).all()
    target = torch.zeros(3, SIZE).t()  # rows of a transposed matrix
    dist.all_gather(list(target.unbind(0)), torch.full((3,), float(RANK)))
    assert (target == torch.arange(float(SIZE)).unsqueeze(1)).all()
    sparse = torch.sparse_coo_tensor([[RANK, RANK + 1]], [1.0, 2.0], (SIZE + 1,))
    dist.all_reduce(sparse)
    dense = torch.zeros(SIZE + 1)
    for rank in range(SIZE):
        dense[rank] += 1
        dense[rank + 1] += 2
    same(sparse.to_dense(), dense, "all_reduce of a sparse tensor")
    rows = list(range(RANK))  # none in rank 0
    sparse = torch.sparse_coo_tensor([rows, rows], torch.ones(RANK, 3).half(), (SIZE, SIZE, 3))
    dist.all_reduce(sparse)
    counts = torch.arange(SIZE - 1, -1, -1).diag()  # of the ranks that have the row
    same(sparse.to_dense(), counts.unsqueeze(2).expand(-1, -1, 3).half(), "all_reduce of rows")
    try:
        dist.all_reduce(sparse, op=dist.ReduceOp.MAX)
        raise AssertionError("expected a refusal")
    except ValueError as error:
        assert "all_reduce: expected SUM for a sparse tensor" in f"{error}", error
    if IN_PYTHON:  # the one backend for all devices
        try:
            dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (SIZE,), device="meta"))
            raise AssertionError("expected a refusal")
        except ValueError as error:
            assert "all_reduce: expected a CPU tensor, got one on meta" in f"{error}", error


def check_messages() -> None:
    if SIZE == 1:
        return
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    found = [torch.zeros(2), torch.zeros(3)]
    works = [
        dist.isend(torch.full((2 + tag,), 10.0 * RANK + tag), right, tag=tag) for tag in (0, 1)
    ]
    for tag in (1, 0):  # in the other order
        dist.recv(found[tag], left, tag=tag)
        assert (found[tag] == 10.0 * left + tag).all()
    for work in works:
        work.wait()
    if RANK == 0:
        sources = set()
        for _ in range(SIZE - 1):
            data = torch.zeros(1)
            source = dist.recv(data, tag=2)
            assert data.item() == source
            sources.add(source)
        assert sources == set(range(1, SIZE))
    else:
        dist.send(torch.tensor([float(RANK)]), 0, tag=2)  # with tag 0 the next one
    requests = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, torch.tensor([RANK]), right),
            dist.P2POp(dist.irecv, data := torch.tensor([-1]), left),
        ]
    )
    for request in requests:
        request.wait()
    assert data.item() == left


def check_monitored_barrier() -> None:
    """One fails as two ranks come late, another one as they do not come. The group goes on."""
    world = dist.group.WORLD
    minute = datetime.timedelta(seconds=60)
    for wait_all in (False, True):
        world.monitored_barrier(minute, wait_all_ranks=wait_all)
    if SIZE < 3:
        return
    failed_barrier("late")
    world.monitored_barrier(minute)
    failed_barrier("missed")
    dist.barrier()
    for wait_all in (False, True):
        world.monitored_barrier(minute, wait_all_ranks=wait_all)


def failed_barrier(case: str) -> None:
    store = dist.FileStore(f"barrier-{case}", SIZE)
    absent = RANK in (1, SIZE - 1)
    said = ""
    dist.barrier()
    try:
        if absent:
            store.get("over")
        if not absent or case == "late":
            limit = datetime.timedelta(seconds=0.5 if absent else 3)
            dist.group.WORLD.monitored_barrier(limit, wait_all_ranks=True)
    except RuntimeError as error:
        said = f"{error}"
    if RANK == 0:
        store.set("over", "yes")
        assert f"Ranks 1, {SIZE - 1} failed to pass monitoredBarrier in 3000 ms" in said, said
    elif not absent or case == "late":
        assert f"Rank {RANK} successfully reached monitoredBarrier" in said, said


def check_groups_and_objects() -> None:
    pairs = dist.new_subgroups(2) if SIZE % 2 == 0 else None
    if pairs:
        own, _ = pairs
        data = torch.tensor([RANK])
        dist.all_reduce(data, group=own)
        assert data.item() == 2 * (RANK - RANK % 2) + 1
    last = dist.new_group([SIZE - 1])
    if RANK == SIZE - 1:
        dist.all_reduce(torch.ones(1), group=last)
    out = [None] * SIZE
    dist.all_gather_object(out, {"rank": RANK, "text": "x" * RANK})
    assert out == [{"rank": rank, "text": "x" * rank} for rank in range(SIZE)]
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    assert (future.then(lambda f: f.value()[0] * 2).wait() == 2 * SIZE).all()


def is_shared(address: int) -> bool:
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            begin, end = (int(word, 16) for word in line.split()[0].split("-"))
            if begin <= address < end:
                return "regroup-arena" in line
    return False


def check_shared_memory() -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    for dtype in FLOATS:
        for count in (1, 1000, *([5 << 20] if dtype == torch.float32 else [])):
            data = backend.allocate_tensor(count, dtype=dtype, device=torch.device("cpu"))
            assert is_shared(data.data_ptr())
            data.copy_(input_of(RANK, dtype, count))
            dist.all_reduce(data)
            same(data, functools.reduce(operator.add, inputs(dtype, count)), "in shared memory")
    shared = []

    def hook(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        shared.append(is_shared(bucket.buffer().data_ptr()))
        return (
            dist.all_reduce(bucket.buffer(), async_op=True)
            .get_future()
            .then(lambda f: f.value()[0])
        )

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model.register_comm_hook(None, hook)
    model(torch.ones(1, 4)).sum().backward()
    assert shared == [not torch.cuda.is_available()], shared


def check_models() -> None:
    """Each rank takes its part of the batch; the model is that of one rank with all of it."""

    def trained(x: torch.Tensor, wrap: Any) -> torch.Tensor:
        torch.manual_seed(1)
        model = wrap(torch.nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    batch = torch.randn(2 * SIZE, 4, generator=torch.Generator().manual_seed(2))
    expected = trained(batch, lambda model: model)
    found = trained(batch[2 * RANK : 2 * RANK + 2], torch.nn.parallel.DistributedDataParallel)
    torch.testing.assert_close(found, expected)


def check_profiler() -> None:
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(torch.ones(3))
        dist.broadcast(torch.ones(2), 0, async_op=True).wait()
    shown = [e for e in profile.function_events if e.name.startswith("regroup:")]
    assert [e.name for e in shown] == ["regroup:all_reduce", "regroup:broadcast"], shown
    assert [e.input_shapes for e in shown] == [[[3]], [[2]]] and all(e.is_async for e in shown)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.environ["REGROUP_TORCH_HOST"] = f"host {int(os.environ['RANK']) % int(sys.argv[1])}"
    dist.init_process_group("regroup")
    RANK, SIZE = dist.get_rank(), dist.get_world_size()
    IN_PYTHON = type(dist.group.WORLD) is not dist.ProcessGroup
    assert ("python" in sys.argv) == IN_PYTHON
    for check in (
        *(check_reductions, check_moves, check_splits, check_layouts),
        *(check_messages, check_monitored_barrier, check_groups_and_objects),
        *(() if IN_PYTHON else (check_shared_memory, check_profiler)),
        check_models,
    ):
        check()
        dist.barrier()
    dist.destroy_process_group()
    print(f"rank {RANK} of {SIZE}: all equal")
