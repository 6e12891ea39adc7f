"""The way of gradients, sums and state between a device and the host, without a device:
_fake_device.py. test_torch_staged.py and test_torch_elastic.py train over it too."""

import hashlib
import re
import sys
import threading
from collections import Counter, OrderedDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import _fake_device
import pytest
import regroup
import regroup.torch
import test_torch
import test_torch_prepare
import test_torch_state
import torch
from regroup import _torch_device, _torch_loader
from regroup._torch_evaluate import _keep_random_state
from regroup._torch_gradient import Gradient
from regroup._torch_state import TrainingState
from torch import nn


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setitem(_torch_device.DEVICES, "cpu", _fake_device.FakeDevice)
    for name, value in vars(_fake_device).items():
        if name in ("stuck", "late", "capturing", "deterministic"):
            monkeypatch.setattr(_fake_device, name, value)
    return _fake_device


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.2), nn.Linear(5, 2))


def digest_of(**options):
    """Trains for 6 steps of 4 shards."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = test_torch.samples(48)
    session = test_torch.join(model, optimizer, data, batch_size=16, epochs=2, **options)
    for step in session:
        for x, y in step:
            step.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
    session.finish()
    values = [*model.state_dict().values(), torch.tensor(step.loss)]
    return hashlib.sha256(b"".join(v.numpy().tobytes() for v in values)).hexdigest()


def test_a_shard_takes_one_copy_and_so_does_a_sum(device):
    before = dict(device.copies)
    digest = digest_of()
    shards, steps = 24, 6
    assert device.copies["to the host"] - before["to the host"] == shards
    assert device.copies["to the device"] - before["to the device"] == steps
    _torch_device.DEVICES.pop("cpu")
    assert digest_of() == digest
    assert device.copies["to the host"] - before["to the host"] == shards


def test_a_copy_to_the_host_that_is_not_awaited_is_seen(device, monkeypatch):
    """So the other tests of this file would fail without the wait."""
    monkeypatch.setattr(device, "DELAY_S", 0.2)
    transfer = Gradient(network()).transfer
    transfer.rest.fill_(3.0)
    transfer.collect([], None, False)
    assert (transfer.host_rest == 3).all()
    transfer.rest.fill_(4.0)
    monkeypatch.setattr(_torch_device, "wait", lambda *_: None)
    transfer.collect([], None, False)
    assert (transfer.host_rest != 4).all()


def test_memory_that_a_copy_to_the_device_reads_is_kept(device, monkeypatch):
    transfer = Gradient(network()).transfer
    native = SimpleNamespace(commit_into=lambda out: out.__setitem__(0, out[0] + 1.0))
    transfer._pinned.zero_()
    for _ in range(3):
        transfer.take_sum(native)
    device.finish()
    monkeypatch.setattr(_torch_device, "wait", lambda *_: None)
    begun = threading.Event()
    device.to_device.add(begun.wait)
    for _ in range(2):
        transfer.take_sum(native)
    begun.set()
    with pytest.raises(RuntimeError, match="pinned memory was written while"):
        device.finish()


@pytest.mark.parametrize("recorded", [False, True])
def test_the_sum_is_on_the_device_before_the_next_shard_is_packed(device, monkeypatch, recorded):
    """The script may have changed the stream between the two."""
    monkeypatch.setattr(device, "late", True)
    transfer = Gradient(network()).transfer
    native = SimpleNamespace(commit_into=lambda out: out.__setitem__(0, 1.0))
    transfer._pinned.zero_()
    transfer.take_sum(native)
    loss = transfer.recorded(torch.tensor(2.0)) if recorded else None
    assert recorded == (transfer.sum[0] == 1.0)
    transfer.begin_leaf()
    transfer.rest.fill_(3.0)
    got = transfer.collect([], loss, False)
    assert (transfer.host_rest == 3).all()
    assert got.loss == (2.0 if recorded else None)
    device.finish()


def test_a_change_before_the_optimizers_step_keeps_the_gradients(device):
    """They are in memory that holds buffers, or nothing, in the next step."""

    def train():
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def fix():
            weight = model[0].weight
            del optimizer.param_groups[0]["params"][0], model[0].weight
            model[0].register_buffer("weight", weight.detach().clone())

        data = test_torch.samples(48)
        options = {"changes": {"fix": fix}, "batch_size": 16, "epochs": 2}
        session = test_torch.join(model, optimizer, data, **options)
        for step in session:
            for x, y in step:
                step.backward(nn.functional.mse_loss(model(x), y))
            if step.number == 2:
                before = [p.grad.clone() for p in model[3].parameters()]
                session.change("fix")
                assert all(map(torch.equal, before, [p.grad for p in model[3].parameters()]))
            optimizer.step()
        session.finish()
        return list(model.state_dict().values())

    staged = train()
    _torch_device.DEVICES.pop("cpu")
    assert all(map(torch.equal, staged, train()))


def test_a_state_is_on_the_host_when_the_last_copy_of_several_is(device, monkeypatch):
    monkeypatch.setattr(device, "DELAY_S", 0.02)
    monkeypatch.setattr(device, "_turns", iter(2 * device._to_host))
    pieces = [torch.full((3,), float(number)) for number in range(4)]
    for piece, copy in zip(pieces, _torch_device.on_host(pieces), strict=True):
        assert bytes(copy) == piece.numpy().tobytes()


def test_integer_buffers_are_looked_at_in_the_last_shard_only(monkeypatch):
    looked = []
    monkeypatch.setattr(Gradient, "_check_counters", lambda self: looked.append(self))
    digest_of()
    assert len(looked) == 6  # steps of 4 shards


def test_a_device_that_does_not_answer_ends_the_training_after_the_deadline(device):
    device.stuck = True
    with pytest.raises(
        regroup.DeadlineExceeded, match="copy of a gradient to the host: the device has not done it"
    ):
        digest_of(deadline=1)


def test_shards_are_not_begun_within_a_captured_graph(device):
    device.capturing = True
    with pytest.raises(
        regroup.Refused, match="step 1: .* captured in a CUDA graph: capture forwar"
    ):
        digest_of()


def test_a_prepared_loop_is_not_captured_either(device):
    device.capturing = True
    objects = test_torch_prepare.Objects()
    with pytest.raises(regroup.Refused, match="step 1: .* captured in a CUDA graph"):
        test_torch_prepare.train_prepared(objects)


def test_deterministic_kernels_are_the_default(device):
    before = device.deterministic  # other tests of this process
    digest_of(deterministic=False)
    assert device.deterministic == before
    digest_of()
    assert device.deterministic == before + 1


def test_a_gpu_is_asked_for_deterministic_kernels(monkeypatch):
    monkeypatch.setattr(_torch_device, "_inductor", lambda: None)
    monkeypatch.setenv("TORCHINDUCTOR_DETERMINISTIC", "0")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    try:
        _torch_device.Cuda(torch.device("cuda:0")).make_deterministic()
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.backends.cudnn.benchmark
        assert _torch_device.os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_copy_stands_in_the_current_stream_after_the_one_before(monkeypatch):
    done = []

    class Target:
        def copy_(self, source, non_blocking):
            done.append(("copy", source, non_blocking))

    class Event:
        def record(self, stream):
            done.append(("record", stream))

    stream = SimpleNamespace(wait_event=lambda event: done.append(("wait", event)))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    gpu = _torch_device.Cuda(torch.device("cuda:0"))
    first = gpu.begin_copy(Target(), "a")
    gpu.begin_copy(Target(), "b", first)
    recorded = ("record", stream)
    assert done == [
        ("copy", "a", True), recorded, ("wait", first), ("copy", "b", True), recorded,
    ]  # fmt: skip


def test_pinned_memory_is_not_filled(monkeypatch):
    """torch fills new memory with NaN where deterministic algorithms are asked for."""
    settings = torch.utils.deterministic
    asked = []

    def empty(elements, dtype, pin_memory):
        asked.append((elements, dtype, pin_memory, settings.fill_uninitialized_memory))
        raise RuntimeError("no memory")

    monkeypatch.setattr(torch, "empty", empty)
    with pytest.raises(RuntimeError):
        _torch_device.Cuda(torch.device("cuda:0")).pinned(3, torch.float32)
    assert asked == [(3, torch.float32, True, False)]
    assert settings.fill_uninitialized_memory


def test_the_fingerprint_of_a_gpu_names_what_its_bits_depend_on(monkeypatch):
    gpu = SimpleNamespace(name="NVIDIA H200", multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    monkeypatch.setattr(_torch_device, "_driver", lambda: "580.65.06")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    told = regroup.torch.fingerprint(torch.device("cuda:0"))
    assert told.startswith(regroup.torch.fingerprint() + " ")
    assert " cudnn-operations=[" in told and " inductor=[" in told
    for one in ("gpu=NVIDIA-H200", "sms=132", "driver=580.65.06", "workspace=:4096:8"):
        assert one in told.split()
    before = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = not before
    try:
        assert regroup.torch.fingerprint(torch.device("cuda:0")) != told
    finally:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = before


def test_a_model_on_the_cpu_leaves_gpus_alone(monkeypatch):
    def asked(*_):
        raise AssertionError("CUDA was initialised")

    monkeypatch.setattr(torch.cuda, "_lazy_init", asked)
    monkeypatch.setattr(torch.cuda, "get_device_properties", asked)
    digest_of()
    assert not torch.cuda.is_initialized()


def test_generators_of_gpus_are_seeded_and_kept_with_those_of_the_cpu(monkeypatch):
    states, seeds = ["a state"], []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: list(states))
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", states.__iadd__)
    _torch_loader.seed_all(12)
    assert seeds == [12]
    with _keep_random_state():
        states[:] = ["another"]
    assert states == ["another", "a state"]


def on(device):
    return SimpleNamespace(device=torch.device(device))


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (["cpu", "cuda:0"], "one device, got 0.weight on cpu and 1.weight on cuda:0"),
        (["cuda:0", "cuda:1"], "one device, got 0.weight on cuda:0 and 1.weight on cuda:1"),
        (["cuda:0", "meta"], "1.weight is on meta, without values"),
        (["mps"], "0.weight: expected a tensor on cpu or cuda, got one on mps"),
        (["cpu", "xpu:0"], "1.weight: expected a tensor on cpu or cuda, got one on xpu:0"),
    ],
)
def test_devices_that_do_not_fit_are_refused_by_name(devices, message):
    named = [(f"{number}.weight", on(kind)) for number, kind in enumerate(devices)]
    with pytest.raises(regroup.Refused, match=re.escape(message)):
        _torch_device.device_of(named)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("DistributedDataParallel", "torch.nn.parallel.distributed"),
        ("FullyShardedDataParallel", "torch.distributed.fsdp.fully_sharded_data_parallel"),
        ("FSDPModule", "torch.distributed.fsdp._fully_shard._fully_shard"),
        ("DataParallel", "torch.nn.parallel.data_parallel"),
    ],
)
def test_a_model_that_exchanges_gradients_itself_is_refused(name, module):
    wrapped = type(name, (nn.Linear,), {"__module__": module})(6, 2)
    with pytest.raises(regroup.Refused, match=f"expected the model itself, got a {name} of it"):
        test_torch.join(wrapped)


def test_a_module_that_exchanges_gradients_itself_is_refused():
    inner = torch.nn.DataParallel(nn.Linear(6, 2))
    with pytest.raises(regroup.Refused, match=r"got a DataParallel in 1\.0: pass it unwrapped"):
        test_torch.join(nn.Sequential(nn.Linear(6, 6), nn.Sequential(inner)))


def compiled(**settings):
    """As torch.compile() leaves it, whose import takes seconds."""
    model = network()
    backend = SimpleNamespace(_torchdynamo_orig_backend=SimpleNamespace(config=settings))
    model.__dict__["dynamo_ctx"] = SimpleNamespace(callback=backend)
    return model


def test_a_model_that_is_tuned_by_measuring_is_refused(monkeypatch):
    _torch_device.refuse_tuning(compiled(max_autotune=False))
    with pytest.raises(regroup.Refused, match=r"torch\.compile\(\) without max-autotune"):
        _torch_device.refuse_tuning(compiled(max_autotune=True))
    monkeypatch.setenv("TORCHINDUCTOR_DETERMINISTIC", "0")
    config = SimpleNamespace(max_autotune=False, deterministic=False)
    monkeypatch.setitem(sys.modules, "torch._inductor.config", config)
    _torch_device._make_inductor_deterministic()
    assert config.deterministic
    _torch_device.refuse_tuning(network())
    config.max_autotune = True
    with pytest.raises(regroup.Refused, match="without max-autotune"):
        _torch_device.refuse_tuning(network())


def test_a_precision_that_is_set_for_a_backend_is_in_the_fingerprint(monkeypatch):
    def mixed():
        raise RuntimeError("mix of the legacy and new APIs")

    before = regroup.torch.fingerprint()
    monkeypatch.setattr(torch, "get_float32_matmul_precision", mixed)
    monkeypatch.setattr(_torch_device, "_precision", lambda *_: "tf32")
    assert "matmul=tf32" in regroup.torch.fingerprint().split()
    assert "matmul=tf32" not in before.split()


def test_cublas_that_was_used_before_its_setting_is_told(monkeypatch):
    monkeypatch.setattr(_torch_device, "_workspace_is_late", True)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *_, **__: None)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    monkeypatch.setattr(_torch_device, "_inductor", lambda: None)
    monkeypatch.setenv("TORCHINDUCTOR_DETERMINISTIC", "0")
    with pytest.warns(UserWarning, match="CUBLAS_WORKSPACE_CONFIG was not set before"):
        _torch_device.Cuda(torch.device("cuda:0")).make_deterministic()
    assert _torch_device.os.environ["TORCHINDUCTOR_DETERMINISTIC"] == "1"


def test_sparse_gradients_on_a_gpu_are_refused():
    sparse = SimpleNamespace(layout=torch.sparse_coo, device=torch.device("cuda:0"))
    with pytest.raises(
        regroup.Refused, match=r"table\.weight has a gradient of torch\.sparse_coo on"
    ):
        Gradient(network())._packed("table.weight", sparse)


def test_fused_optimizers_are_refused_elsewhere_than_on_the_cpu():
    model = nn.Linear(6, 2, device="meta")
    with pytest.raises(regroup.Refused, match=r"use torch\.optim\.SGD"):
        test_torch.join(model, regroup.optim.SGD(model.parameters()))


def states():
    """Two of one kind: the first has a state to save, the other what it loads is written over."""
    adam = test_torch_state.OPTIMIZERS["adam"]
    found = [test_torch_state.make(adam, None, seed) for seed in (1, 2)]
    test_torch_state.advance(found[0], 2)
    return found


def test_a_state_on_a_device_has_the_bytes_of_one_on_the_cpu(device):
    """So a checkpoint is read wherever it was written."""
    source, target = states()
    before = device.copies["to the host"]
    staged = b"".join(bytes(piece) for piece in source.save())
    parts = {
        name: bytes(part, "utf8") if isinstance(part, str) else bytes(part)
        for name, part in source.replicated()
    }
    copied = device.copies["to the host"] - before
    assert copied >= 2 * len(list(source.model.parameters()))
    target.load(memoryview(staged))
    assert b"".join(bytes(piece) for piece in target.save()) == staged
    _torch_device.DEVICES.pop("cpu")
    assert test_torch_state.bytes_of(source) == staged
    plain = {
        name: bytes(part, "utf8") if isinstance(part, str) else bytes(part.numpy())
        for name, part in source.replicated()
    }
    assert parts == plain


def test_a_copy_of_the_state_has_the_deadline_too(device):
    source, _ = states()
    late = TrainingState(source.model, source.optimizers, [], None, deadline=0.3)
    device.stuck = True
    with pytest.raises(regroup.DeadlineExceeded, match="copy of the state to the host"):
        late.save()


def test_states_of_other_objects_go_where_they_were():
    own = {"mean": torch.zeros(2, device="meta"), "n": 3, "list": [torch.zeros(1, device="meta")]}
    saved = {"mean": torch.ones(2), "n": 4, "list": [torch.ones(1), torch.ones(1)], "new": 1}
    placed = _torch_device.placed(saved, own)
    assert placed["mean"].device.type == placed["list"][0].device.type == "meta"
    assert placed["list"][1].device.type == "cpu"
    assert (placed["n"], placed["new"]) == (4, 1)


def test_a_learning_rate_on_a_device_stays_there():
    """load_state_dict() takes tensors of parameter groups as they are."""
    found = []
    for device in ("cpu", "meta"):
        model = network()
        optimizer = torch.optim.SGD(model.parameters())
        optimizer.param_groups[0]["lr"] = torch.tensor(0.1, device=device)
        found.append(TrainingState(model, [optimizer], [], None))
    source, target = found
    target.load(memoryview(b"".join(bytes(piece) for piece in source.save())))
    (group,) = target.optimizers[0].param_groups
    assert group["lr"].device.type == "meta"


def test_batches_of_an_evaluation_go_to_the_model():
    x = torch.zeros(2)
    moved = _torch_device.moved([{"x": x, "names": ["a"]}, (x, 3)], torch.device("meta"))
    assert moved[0]["x"].device.type == moved[1][0].device.type == "meta"
    assert (moved[0]["names"], moved[1][1]) == (["a"], 3)


Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Sample:
    x: torch.Tensor
    name: str


def test_batches_of_other_containers_go_to_the_model():
    x = torch.zeros(2)
    given = [Pair(x, 3), OrderedDict(x=x), Sample(x, "a"), Counter(a=2)]
    pair, ordered, sample, counter = _torch_device.moved(given, torch.device("meta"))
    assert type(pair) is Pair and type(ordered) is OrderedDict and type(sample) is Sample
    assert pair.x.device.type == ordered["x"].device.type == sample.x.device.type == "meta"
    assert (pair.y, sample.name, counter) == (3, "a", Counter(a=2))
    assert given[1]["x"] is given[2].x is x


def test_a_batch_for_the_cpu_is_left_alone():
    batch = SimpleNamespace(to=None)
    batch.to = lambda device: pytest.fail("asked to move")
    assert _torch_device.moved(batch, torch.device("cpu")) is batch
