"""The parameter server from Python: NumPy and PyTorch, and a server that is killed."""

import gc
import os
import pathlib
import re
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import regroup.ps as ps
import torch

ROOT = pathlib.Path(__file__).parents[2]
JOB = ["regroup", "--oversubscribe", "--role", "ps=1", "--role", "worker=2", "--ps-memory", "128M"]
IDS = np.array([17, -4, 17, 2**62])


@pytest.fixture
def server():
    with ps.Server("64M", seed=7) as started:
        yield started


@pytest.fixture
def client(server):
    with server.attach(0, deadline=60) as attached:
        yield attached


def test_rows_are_pushed_and_pulled(client):
    users = client.table("users", 3, init=ps.Constant(1.0), optimizer=ps.SGD(lr=0.5))
    gradients = np.arange(12, dtype=np.float32).reshape(4, 3)
    users.push(IDS, gradients).wait(60)
    twice = gradients[0] + gradients[2]  # id 17 occurs twice: its gradients are added
    wanted = 1 - 0.5 * np.stack([twice, gradients[1], twice, gradients[3]])
    assert np.array_equal(users.pull(IDS), wanted)
    assert np.array_equal(users.pull([[5], [6]]), np.ones((2, 1, 3)))  # nobody has pushed to them


def test_tensors_are_pushed_and_pulled(client):
    bias = client.dense("bias", (2, 3), dtype="int64", optimizer=ps.Sum())
    for _ in range(3):
        bias.push(np.ones((2, 3), np.int64))
    client.flush()
    assert np.array_equal(bias.pull(), np.full((2, 3), 3))


def test_initial_rows_are_a_function_of_seed_and_name():
    drawn = []
    for seed in (1, 1, 2):
        with ps.Server("64M", seed=seed) as one, one.attach(0, deadline=60) as client:
            table = client.table("t", 4, init=ps.Normal(), optimizer=ps.Sum())
            drawn.append(table.pull(IDS))
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_a_killed_server_loses_nothing(server, client):
    counts = client.table("counts", 2, dtype="int64", optimizer=ps.Sum())
    for _ in range(5):
        for _ in range(20):
            counts.push(np.arange(50), np.ones((50, 2), np.int64))
        server.kill()
        counts.push(np.arange(50), np.ones((50, 2), np.int64))  # it waits in the lane
        server.start()
    client.flush()
    assert np.array_equal(counts.pull(np.arange(50)), np.full((50, 2), 105))


def test_clocks_of_mode_ssp_bound_how_far_clients_are_apart(server):
    bias = {"name": "bias", "shape": 2, "optimizer": ps.Sum()}
    mode = {"mode": "ssp", "staleness": 1}
    with server.attach(0, deadline=5, **mode) as fast, server.attach(1, **mode) as slow:
        other = slow.dense(**bias)  # once the server has started
        seen = fast.dense(**bias)
        for step in fast:
            if step == 2:
                break
            seen.push(np.array([1, 0], np.float32))
            assert seen.pull()[0] == step + 1, "own pushes"
        with pytest.raises(ps.DeadlineExceeded, match="client 1 .*has clock 0; staleness=1 needs"):
            seen.pull()
        other.push(np.array([0, 1], np.float32))
        assert slow.advance() == 1
        assert np.array_equal(seen.pull(), [2, 1])
        assert [step for step, _ in zip(fast, "ab", strict=False)] == [2, 3] and fast.clock == 4
        with server.attach(2, **mode) as joins:
            assert joins.clock == 4


def test_modes_that_are_wrong_or_differ_are_refused(server):
    def refused(match: str, **mode):
        with pytest.raises(ps.Refused, match=match):
            server.attach(1, **mode)

    refused('mode "bsp": expected "async", "ssp" or "sync"', mode="bsp")
    refused("expected a number of leaves", mode="sync")
    refused("leaves=0: expected 1 to 1024", mode="sync", leaves=0)
    refused("staleness=-1: expected 0 to", mode="ssp", staleness=-1)
    refused('staleness is for mode="ssp"', staleness=3)
    refused("expected a staleness", mode="ssp")
    with server.attach(0, mode="ssp", staleness=3):
        refused('mode "async" here, "ssp" at client 0')
        refused("staleness 4 here, 3 at client 0", mode="ssp", staleness=4)
    with server.attach(1) as client:
        assert [step for step, _ in zip(client, "abc", strict=False)] == [0, 1, 2]


LEAVES = 5


def train(client: ps.Client, steps: int, kill=lambda step, leaf: None) -> list[np.ndarray]:
    """Weights after so many steps of mode sync."""
    users = client.table(
        "users", 3, init=ps.Uniform(-1, 1), optimizer=ps.RowAdagrad(lr=0.1), rows=50
    )
    top = client.dense("top", (4, 7), optimizer=ps.Adam(lr=0.01))
    for step in client.steps(steps):
        for leaf in step:
            random = np.random.default_rng([step.number, leaf])
            ids = random.integers(0, 50, 12)
            users.push(ids, users.pull(ids) * np.float32(0.3) + random.random((12, 3), np.float32))
            kill(step.number, leaf)
            top.push(top.pull() + random.random((4, 7), np.float32))
    return [users.pull(np.arange(50)), top.pull()]


def test_weights_of_mode_sync_do_not_depend_on_clients_and_deaths():
    mode = {"mode": "sync", "leaves": LEAVES}
    with ps.Server("64M", seed=3) as server, server.attach(0, **mode) as client:
        expected = train(client, 12)
        assert client.clock == 12

    with ps.Server("128M", seed=3, threads=2) as server:

        def kill(step: int, leaf: int) -> None:
            if leaf == step % LEAVES:
                with killing:
                    server.kill()
                    server.start()

        killing = threading.Lock()
        with (
            server.attach(0, **mode) as one,
            server.attach(1, **mode) as two,
            ThreadPoolExecutor() as pool,
        ):
            results = [pool.submit(train, client, 12, kill) for client in (one, two)]
            for result in results:
                for got, wanted in zip(result.result(120), expected, strict=True):
                    assert np.array_equal(got, wanted)


def layers(client: ps.Client) -> tuple[torch.nn.Module, torch.nn.Module]:
    torch.manual_seed(1)
    return (
        ps.torch.Embedding(client, "users", dim=4, optimizer=ps.RowAdagrad(lr=0.1)),
        ps.torch.Dense(client, "top", torch.nn.Linear(4, 1), optimizer=ps.Adam(lr=0.01)),
    )


def train_layers(client: ps.Client, users, top, steps: int) -> list[torch.Tensor]:
    for step in client.steps(steps):
        for leaf in step:
            random = torch.Generator().manual_seed(step.number * LEAVES + leaf)
            ids = torch.randint(0, 30, (16,), generator=random)
            wanted = torch.rand(16, 1, generator=random)
            client.push(((top(users(ids)) - wanted) ** 2).mean())
    with torch.no_grad():
        return [users(torch.arange(30)), top(torch.eye(4))]


def test_layers_of_pytorch_in_mode_sync_have_the_same_bits_with_any_number_of_clients():
    results = []
    for count in (1, 3):
        with ps.Server("64M", seed=3) as server, ThreadPoolExecutor() as pool:
            mode = {"mode": "sync", "leaves": LEAVES}
            clients = [server.attach(number, **mode) for number in range(count)]
            made = [layers(client) for client in clients]
            trained = [
                pool.submit(train_layers, client, *of, 6)
                for client, of in zip(clients, made, strict=True)
            ]
            results += [one.result(120) for one in trained]
            for client in clients:
                client.close()
    assert len(results) == 4
    for result in results[1:]:
        assert all(torch.equal(*pair) for pair in zip(result, results[0], strict=True))
    assert results[0][0].abs().sum() > 0


def test_pushes_and_steps_of_mode_sync_are_checked(server):
    with server.attach(0, mode="sync", leaves=2) as client:
        bias = client.dense("bias", 2, optimizer=ps.Sum())
        with pytest.raises(ps.Refused, match="no leaf is begun"):
            bias.push(np.ones(2, np.float32))
        with pytest.raises(ps.Refused, match="step 0 is not complete"):
            for _ in client.steps(2):
                pass
        with pytest.raises(ps.Refused, match="call next_leaf"):
            client.advance()
        for step in client.steps(2):
            for leaf in step:
                bias.push(np.full(2, leaf + 1, np.float32))
                assert np.array_equal(bias.pull(), np.full(2, 3 * step.number))
        assert np.array_equal(bias.pull(), [6, 6])
    with (
        server.attach(0) as client,
        pytest.raises(ps.Refused, match='for mode="sync", got mode="async"'),
    ):
        for step in client.steps(3):
            list(step)


def test_a_step_that_is_complete_gives_no_leaves(server):
    with server.attach(0, mode="sync", leaves=2) as client:
        for step in client.steps(2):
            assert list(step) == [0, 1]
            assert list(step) == [], "a leaf of the next step"
        assert client.clock == 2


def test_numbers_have_no_axes(client):
    users = client.table("users", 2, optimizer=ps.Assign())
    users.push(7, np.array([1, 2], np.float32)).wait(60)
    assert np.array_equal(users.pull(7), [1, 2])
    scale = client.dense("scale", (), optimizer=ps.Assign())
    scale.push(np.float32(3)).wait(60)
    assert scale.pull().shape == () and scale.pull() == 3


def test_a_server_runs_until_nobody_uses_it():
    client = ps.Server("64M").attach(client=0, deadline=60)
    process = client._server._process
    ticket = client.dense("bias", 2, optimizer=ps.Sum()).push(np.ones(2, np.float32))
    del client
    ticket.wait(60)
    assert process.poll() is None and os.getsid(process.pid) == process.pid  # no Ctrl-C for it
    del ticket
    gc.collect()
    assert process.wait(60) != 0


def test_a_server_ends_with_its_process():
    program = (
        "import os, regroup.ps as ps\nclient = ps.Server('64M').attach(client=0)\n"
        "client.dense('bias', 2, optimizer=ps.Sum())\nos.kill(os.getpid(), 9)"
    )
    # It returns once nobody has the pipe any more: the server has inherited it.
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=240)
    assert done.returncode == -9


def test_a_server_outlives_the_thread_that_starts_it():
    started = []
    thread = threading.Thread(target=lambda: started.append(ps.Server("64M")))
    thread.start()
    thread.join()
    with started[0] as server, server.attach(0, deadline=60) as client:
        client.dense("bias", 2, optimizer=ps.Sum()).push(np.ones(2, np.float32)).wait(60)
        assert server._process.poll() is None


def test_a_closed_client_gives_its_number_back(server):
    client = server.attach(0, deadline=60)
    layer = ps.torch.Embedding(client, "e", 1, optimizer=ps.SGD(lr=1.0))
    client.push(layer(torch.tensor([3])).sum())
    client.close()
    with server.attach(0, deadline=60) as another:
        rows = another.table("e", 1, optimizer=ps.SGD(lr=1.0))
        assert rows.pull([3]) == -1


def test_a_closed_client_gives_its_number_back_though_a_ticket_lives(server):
    with server.attach(0, deadline=60) as client:
        ticket = client.dense("bias", 1, optimizer=ps.Sum()).push(np.ones(1, np.float32))
    with server.attach(0, deadline=60) as another:
        bias = another.dense("bias", 1, optimizer=ps.Sum())
        assert bias.pull() == 1
    with pytest.raises(ps.Refused, match="this client is closed"):
        ticket.wait(60)


def test_gradients_stay_after_a_push_that_fails(server, client):
    class Fails:
        def __getattr__(self, name):
            raise ps.DeadlineExceeded("no server", "deadline exceeded")

    rows = ps.torch.Embedding(client, "e", 1, optimizer=ps.SGD(lr=1.0))
    module = torch.nn.Linear(1, 1, bias=False)
    dense = ps.torch.Dense(client, "top", module, optimizer=ps.SGD(lr=1.0))
    loss = rows(torch.tensor([3])).sum() + dense(torch.ones(1, 1)).sum()
    loss.backward()
    native, client._native = client._native, Fails()
    for layer in (rows, dense):
        with pytest.raises(ps.DeadlineExceeded):
            layer.push_gradients()
    client._native = native
    before = module.weight.item()
    client.push()
    client.flush()
    dense.pull()
    with torch.no_grad():
        assert rows(torch.tensor([3])).item() == -1
    assert module.weight.item() == pytest.approx(before - 1)


WRONG = {
    "id 5 occurs twice, and Assign": lambda _, c: c.table("set", 1, optimizer=ps.Assign()).push(
        [5, 6, 5], np.ones((3, 1), np.float32)
    ),
    "gradients of float32, got float64": lambda t, _: t.push([1], np.ones((1, 2))),
    "2 rows of 2 elements": lambda t, _: t.push([1, 2], np.ones((1, 2), np.float32)),
    "expected ids of int64, got float64": lambda t, _: t.pull(np.ones(2)),
    "expected a floating-point dtype for a layer, got int32": lambda _, c: ps.torch.Embedding(
        c, "counts", 1, dtype="int32", optimizer=ps.Sum()
    ),
    "expected lr >= 0, got -1": lambda t, _: t.push([1], np.ones((1, 2), np.float32), lr=-1),
    "expected dim 2 as the server has it, got 3": lambda _, c: c.table(
        "rows", 3, optimizer=ps.SGD(lr=1)
    ),
    "adam would move rows that get no gradient": lambda _, c: c.table(
        "other", 2, optimizer=ps.Adam()
    ),
    "expected ids from 0 to 9, got 10": lambda _, c: c.table(
        "direct", 2, rows=10, optimizer=ps.SGD(lr=1)
    ).pull([10]),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_are_refused(client, message):
    rows = client.table("rows", 2, optimizer=ps.SGD(lr=1))
    with pytest.raises(ps.Refused, match=message):
        WRONG[message](rows, client)


def test_a_deadline_is_an_error_that_names_the_table(server):
    server.stop()
    with (
        server.attach(0, deadline=0.02) as client,
        pytest.raises(ps.DeadlineExceeded, match="table users: the server of shard 0"),
    ):
        client.table("users", 2, optimizer=ps.Sum())


def test_a_server_that_runs_is_not_started_again(server, client):
    client.dense("bias", 1, optimizer=ps.Sum())  # it serves, so it ends by itself after SIGTERM
    process = server._process
    with pytest.raises(ps.Refused, match=f"the server runs, as process {process.pid}"):
        server.start()
    server.stop()
    assert process.poll() == 0


def test_two_clients_of_one_number_are_refused(server, client):
    with pytest.raises(ps.Refused, match="is attached under this number"):
        server.attach(0, deadline=60)


def test_an_embedding_trains_as_torch_does(client):
    torch.manual_seed(1)
    ours = ps.torch.Embedding(client, "e", 4, init=ps.Normal(), optimizer=ps.SGD(lr=0.5))
    with torch.no_grad():
        plain = torch.nn.Embedding.from_pretrained(ours(torch.arange(10)), freeze=False)
    sgd = torch.optim.SGD(plain.parameters(), lr=0.5)
    for _ in range(4):
        first, second = torch.randint(10, (3, 5)), torch.randint(10, (7,))
        for layer in (ours, plain):
            loss = layer(first).square().sum() + layer(second).sum()
            if layer is ours:
                client.push(loss)
            else:
                sgd.zero_grad()
                loss.backward()
                sgd.step()
        client.flush()
    with torch.no_grad():
        assert torch.allclose(ours(torch.arange(10)), plain.weight, rtol=1e-5, atol=1e-6)


def test_a_pass_without_a_backward_pass_leaves_nothing(client):
    layer = ps.torch.Embedding(client, "e", 1, optimizer=ps.Sum())
    out = layer(torch.tensor([3]))
    rows = weakref.ref(out.grad_fn.next_functions[0][0].variable)
    assert rows().shape == (1, 1)
    del out
    gc.collect()
    assert rows() is None
    for _ in range(100):  # gradients that are not pushed are added up
        layer(torch.tensor([3, 4])).sum().backward()
    assert len(layer._gradients) <= 16
    client.push()
    client.flush()
    assert layer.table.pull([3, 4]).tolist() == [[100], [100]]


def test_the_padding_has_no_row(client):
    ids = torch.tensor([[3, -1, 3], [-1, 5, -1], [-1, -1, -1]])
    ours = ps.torch.Embedding(
        client, "e", 2, rows=9, init=ps.Normal(), optimizer=ps.SGD(lr=1), padding_idx=-1
    )
    out = ours(ids)
    assert torch.equal(out[ids == -1], torch.zeros(6, 2)) and out[0, 0].ne(0).all()
    before = ours.table.pull([3, 5])
    client.push(out.sum())
    client.flush()
    assert np.allclose(ours.table.pull([3, 5]), before - [[2, 2], [1, 1]])
    client.push(ours(torch.tensor([-1])).sum())  # no row at all
    for mode in ("sum", "mean", "max"):
        bag = ps.torch.EmbeddingBag(
            client, mode, 2, rows=9, mode=mode, init=ps.Normal(), optimizer=ps.SGD(lr=1),
            padding_idx=7,
        )  # fmt: skip
        with torch.no_grad():
            weight = torch.tensor(bag.table.pull(np.arange(9)))
        plain = torch.nn.EmbeddingBag.from_pretrained(
            weight, mode=mode, padding_idx=7, freeze=False
        )
        wanted = ids.masked_fill(ids == -1, 7)
        assert torch.allclose(bag(wanted), plain(wanted))
        client.push(bag(wanted).sum())
        plain(wanted).sum().backward()
        client.flush()
        assert np.allclose(bag.table.pull(np.arange(9)), (weight - plain.weight.grad).detach())


def test_bags_are_those_of_torch(client):
    ours = ps.torch.EmbeddingBag(
        client, "b", 4, rows=10, mode="sum", init=ps.Normal(), optimizer=ps.LazyAdam()
    )
    with torch.no_grad():
        rows, inverse = ours.pull(torch.arange(10))
        plain = torch.nn.EmbeddingBag.from_pretrained(rows[inverse], mode="sum")
    ids, offsets = torch.tensor([3, 3, 9, 0]), torch.tensor([0, 3])
    assert torch.allclose(ours(ids, offsets), plain(ids, offsets))
    before = ours(ids, offsets).detach()
    client.push(ours(ids, offsets).sum())
    client.flush()
    assert not torch.allclose(ours(ids, offsets), before)


def test_a_module_trains_as_torch_does(client):
    torch.manual_seed(2)
    plain = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    torch.manual_seed(2)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    ours = ps.torch.Dense(client, "top", module, optimizer=ps.Adam(lr=0.01))
    adam = torch.optim.Adam(plain.parameters(), lr=0.01)
    for _ in range(5):
        x = torch.randn(8, 3)
        client.push(ours(x).square().mean())
        client.flush()
        adam.zero_grad()
        plain(x).square().mean().backward()
        adam.step()
    ours.pull()
    for mine, theirs in zip(module.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6)
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    with pytest.raises(ps.Refused, match="the initial parameters differ"):
        ps.torch.Dense(client, "top", other, optimizer=ps.Adam(lr=0.01))


def test_importing_needs_the_standard_library_only(run_python):
    run_python(
        "-c",
        "import sys, regroup.ps; assert not {'numpy', 'torch'} & sys.modules.keys()",
    )


def test_a_step_lacks_one_push_of_its_own_at_most(server, client):
    layer = ps.torch.Embedding(client, "e", 1, optimizer=ps.SGD(lr=1.0))
    ids = torch.tensor([3])
    for step in range(50):
        seen = -layer(ids)  # each push moves the row by -1
        assert step - 1 <= seen.item() <= step
        client.push(-seen.sum())
    client.flush()
    server.kill()
    client.push((layer(ids)).sum())  # goes on without a server
    server.start()
    client.push((layer(ids)).sum())
    client.flush()
    with torch.no_grad():
        assert layer(ids).item() == -52


def run_job(*program: str) -> str:
    done = subprocess.run([*JOB, *program], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_trains_embeddings_in_a_job():
    told = run_job(sys.executable, "examples/pytorch/ps_digits.py", "--steps", "150")
    # Both evaluate what both have trained: about 0.9. Guesses are right in 0.1 of all cases.
    first, second = [float(a) for a in re.findall(r"accuracy (\S+) on", told)]
    assert first == second > 0.3, told


def test_the_click_model_trains_in_a_job():
    told = run_job(sys.executable, "examples/pytorch/ps_clicks.py", "--steps", "50")
    # Both evaluate what both have trained: about 0.98. Guesses have 0.5.
    first, second = [float(a) for a in re.findall(r"AUC (\S+) on", told)]
    assert first == second > 0.8, told


def test_the_counting_example_counts_exactly():
    told = run_job("ps_counting", "2", "200")
    assert told.splitlines() == ["ps_counting: counted 4000 of 4000"] * 2


def test_a_job_without_a_server_is_refused(run_python):
    run_python(
        "-c",
        "import regroup.ps as ps\ntry: ps.join()\n"
        "except ps.Refused as e: assert '--role ps=1' in str(e), e\nelse: assert False",
    )
