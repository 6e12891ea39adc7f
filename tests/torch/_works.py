"""Operations in progress, two ranks: what nobody waits for advances and its memory lives, futures
end in the order in which operations end, and their callbacks may communicate.

usage: _works.py [python], as a rank of a job.  python: expects the group in Python.
"""

import datetime
import faulthandler
import gc
import os
import sys
import threading
import time

import _without_compiler  # noqa: F401
import torch
import torch.distributed as dist

COUNT = 1 << 20


def check_dropped_message() -> None:
    if RANK == 0:
        dist.isend(torch.full((COUNT,), 7.0), 1)
        gc.collect()
        others = [torch.full((COUNT,), -1.0) for _ in range(4)]
        STORE.set("dropped", "1")
        STORE.wait(["received"])
        del others
    else:
        STORE.wait(["dropped"])
        found = torch.zeros(COUNT)
        dist.recv(found, 0)
        assert (found == 7).all(), found
        STORE.set("received", "1")


def check_dropped_collective() -> None:
    matrix = torch.zeros(4, 6)
    matrix[:, 1] = RANK + 1
    dist.all_reduce(matrix[:, 1], async_op=True)
    gc.collect()
    dist.barrier()
    until = time.monotonic() + 60
    while (matrix[:, 1] != 3).any():  # the group's thread copies the result back
        assert time.monotonic() < until, matrix
        time.sleep(0.001)


def check_two_groups() -> None:
    first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
    x, y = torch.ones(COUNT), torch.ones(COUNT)
    work = dist.all_reduce(x, group=first, async_op=True)
    if RANK == 0:
        dist.all_reduce(y, group=second)
        work.wait()
    else:
        work.wait()
        dist.all_reduce(y, group=second)
    assert (x == 2).all() and (y == 2).all()


def check_progress_outside_of_the_group() -> None:
    if RANK == 0:
        work = dist.isend(torch.ones(4), 1)
        STORE.wait(["outside"])
        work.wait()
    else:
        dist.recv(torch.zeros(4), 0)
        STORE.set("outside", "1")


def check_futures_in_another_order() -> None:
    found = torch.zeros(4)
    if RANK == 0:
        work = dist.irecv(found, 1)
        received = work.get_future()
        assert not work.is_completed()
        dist.all_reduce(torch.ones(4), async_op=True).get_future().wait()
        STORE.set("reduced", "1")
        received.wait()
        assert (found == 1).all() and work.is_completed()
    else:
        dist.all_reduce(torch.ones(4), async_op=True).wait()
        STORE.wait(["reduced"])
        dist.send(torch.ones(4), 0)


def check_callbacks_that_communicate() -> None:
    def twice(future: torch.futures.Future) -> torch.Tensor:
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    assert (future.then(twice).then(lambda f: twice_of(f.value())).wait() == 8).all()


def twice_of(data: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(data)
    return data


def check_callbacks_that_wait_for_each_other() -> None:
    """The first one waits for the second, which waits for another message of the other rank."""
    first_runs, second_is_made = threading.Event(), threading.Event()

    def wait_for_second(_: torch.futures.Future) -> torch.Tensor:
        first_runs.set()
        assert second_is_made.wait(60)
        return second.wait()

    def wait_for_message(_: torch.futures.Future) -> torch.Tensor:
        assert first_runs.wait(60)
        found = torch.zeros(1)
        dist.irecv(found, 1 - RANK).get_future().wait()
        return found

    sent = [dist.isend(torch.ones(1), 1 - RANK) for _ in range(2)]
    first = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(wait_for_second)
    second = dist.irecv(torch.zeros(1), 1 - RANK).get_future().then(wait_for_message)
    second_is_made.set()
    assert first.wait().item() == 1
    for work in sent:
        work.wait()


def reduced(data: torch.Tensor) -> torch.Tensor:
    return dist.all_reduce(data, async_op=True).get_future().wait()[0]


def exchanged(data: torch.Tensor) -> torch.Tensor:
    """The same sum, by messages."""
    parts = [torch.empty_like(data) for _ in range(2)]
    dist.all_to_all(parts, [data, data])
    return parts[0] + parts[1]


def check_order_of_callbacks() -> None:
    """Operations that callbacks start come before those that the rank starts later, in every rank,
    whatever the time that a callback takes."""
    for add in (reduced, exchanged):
        found = []

        def again(future: torch.futures.Future, add=add) -> torch.Tensor:
            time.sleep(0.2 * RANK)
            return add(future.value()[0])

        for size in (3, 3, 4):
            data = torch.full((size,), float(size))
            found.append(dist.all_reduce(data, async_op=True).get_future().then(again))
            time.sleep(0.1 * (1 - RANK))  # callbacks begin later in rank 1, and this in rank 0
            later = add(torch.full((size,), 1.0 + RANK))
            assert (later == 3).all(), later
        for size, future in zip((3, 3, 4), found, strict=True):
            assert future.wait().tolist() == [4.0 * size] * size


def check_order_of_several_callbacks() -> None:
    """Those of several operations in progress run in the order of the futures, in every rank, and
    so do those of the operations that a callback starts."""

    def later(future: torch.futures.Future, at: int, add) -> torch.Tensor:
        time.sleep(0.1 * (at if RANK == 0 else 2 - at))  # another order, if they ran at once
        return add(future.value()[0])

    def started(sizes: tuple[int, ...], callback) -> list[torch.Tensor]:
        works = [dist.all_reduce(torch.ones(size), async_op=True) for size in sizes]
        futures = [
            work.get_future().then(lambda f, at=at: callback(f, at))
            for at, work in enumerate(works)
        ]
        return [future.wait() for future in futures]

    for add in (reduced, exchanged):

        def inner(future: torch.futures.Future, at: int, add=add) -> torch.Tensor:
            return later(future, at, add)

        def outer(future: torch.futures.Future, at: int, inner=inner) -> torch.Tensor:
            size = 10 * future.value()[0].numel()
            return torch.cat(started((size, size + 1), inner))

        for sizes, callback in (((3, 4, 5), inner), ((6, 7), outer)):
            for found in started(sizes, callback):
                assert (found == 4).all(), found


def check_a_callback_that_waits_for_a_later_future() -> None:
    group = dist.new_group([0, 1])
    if RANK == 1:
        STORE.wait(["taken"])
    works = [dist.all_reduce(torch.ones(4), group=group, async_op=True) for _ in range(2)]
    if RANK == 0:
        first, second = (work.get_future() for work in works)
        waits = first.then(lambda _: second.wait())
        seconds = datetime.timedelta(seconds=1)
        group._get_backend(torch.device("cpu")).set_timeout(seconds)
        STORE.set("taken", "1")
        try:
            waits.wait()
            raise AssertionError("expected an error")
        except RuntimeError as error:
            assert "must not wait for what comes after it" in f"{error}", error
    for work in works:
        work.wait()


def check_power_sgd() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    torch.manual_seed(0)
    layers = torch.nn.Sequential(*(torch.nn.Linear(32, 32, bias=False) for _ in range(4)))
    for layer in layers:
        torch.nn.init.eye_(layer.weight)
    model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.005)  # 4 buckets
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=32, start_powerSGD_iter=2, min_compression_rate=0.1
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        model.zero_grad()
        model(torch.eye(32)[: 8 * (RANK + 1)]).sum().backward()
    expected = torch.zeros(32, 32)  # columns of the samples of either rank, averaged
    expected[:, :16] = 0.5
    expected[:, :8] += 0.5
    for layer in layers:
        torch.testing.assert_close(layer.weight.grad, expected, atol=1e-4, rtol=1e-4)


def check_fork() -> None:
    """The child refuses; that it frees the group ends it for nobody."""
    if (child := os.fork()) == 0:
        status = 1
        try:
            dist.all_reduce(torch.ones(1))
        except dist.DistBackendError as error:
            status = 0 if "is a fork of it: form groups after a fork" in f"{error}" else 2
        finally:
            dist.distributed_c10d._world.pg_map.clear()
            gc.collect()
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    data = torch.ones(1)
    dist.all_reduce(data)
    assert data.item() == 2


if __name__ == "__main__":
    faulthandler.dump_traceback_later(220, exit=True)
    dist.init_process_group("regroup", timeout=datetime.timedelta(seconds=60))
    in_python = type(dist.group.WORLD) is not dist.ProcessGroup
    assert in_python == ("python" in sys.argv)
    RANK = dist.get_rank()
    STORE = dist.distributed_c10d._get_default_store()
    for check in (
        *(check_dropped_message, check_dropped_collective, check_two_groups),
        *(check_progress_outside_of_the_group, check_futures_in_another_order),
        *(check_callbacks_that_communicate, check_callbacks_that_wait_for_each_other),
        *(check_order_of_callbacks, check_order_of_several_callbacks),
        check_a_callback_that_waits_for_a_later_future,
        *(check_power_sgd, *([check_fork] if in_python else [])),
    ):
        check()
        dist.barrier()
        print(f"rank {RANK}: {check.__name__} is right", flush=True)
    dist.irecv(torch.zeros(4), 1 - RANK)  # in progress when the interpreter ends
