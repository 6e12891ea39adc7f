"""regroup.Session, the level without a framework, in a world of one."""

import json
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
import regroup
import torch
from regroup import _native


def join(weight, **options):
    return regroup.Session(regroup.TrackedState(weight=weight), elements=weight.size, **options)


def test_importing_regroup_needs_the_standard_library_only(run_python):
    loaded = run_python("-c", "import sys, regroup; print(*sorted(sys.modules))").split()
    assert "regroup._native" in loaded
    assert not {"torch", "numpy", "tensorflow", "h5py"} & set(loaded)


def test_the_module_exports_nothing_but_its_initialisation():
    output = subprocess.check_output(["nm", "-D", "--defined-only", _native.__file__], text=True)
    assert [line.split()[-1] for line in output.splitlines()] == ["PyInit__native"]
    needed = subprocess.check_output(["ldd", _native.__file__], text=True)
    assert "libstdc++" not in needed


@pytest.mark.parametrize(
    ("argument", "value", "why"),
    [
        ("state", None, r"state: expected capacity\(\).*, got None without"),
        ("state", {"w": np.zeros(3)}, "state: expected capacity.*, got a dict without"),
        ("elements", -1, "elements: expected a whole number >= 0, got -1"),
        (
            "dtype",
            np.float32,
            "dtype: expected a string, got the class float32, not an instance of it",
        ),
        ("samples", 1.5, "samples: expected a whole number >= 0, got a float"),
        ("batch", "8", "batch: expected a whole number >= 0, got a str"),
        ("epochs", None, "epochs: expected a whole number >= 0, got None"),
        ("deadline", 2**70, "deadline: expected a whole number >= 0, got 1180591620717411303424"),
        ("model", 5, "model: expected a string, got an int"),
        ("observer", 5, "observer: expected a function, got an int"),
    ],
)
def test_a_session_names_the_argument_that_cannot_be(argument, value, why):
    words = {"state": regroup.TrackedState(w=np.zeros(3)), "elements": 3, "samples": 4, "batch": 2}
    words |= {"epochs": 1, argument: value}
    with pytest.raises(regroup.Refused, match=f"^Session: {why}"):
        regroup.Session(words.pop("state"), **words)


@pytest.mark.parametrize(
    "array", [[1.0], None, torch.ones(3), np.zeros(2, "M8[s]"), np.array([object()])]
)
def test_a_tracked_state_names_the_array_that_cannot_be(array):
    with pytest.raises(regroup.Refused, match="^TrackedState: w (is|holds) "):
        regroup.TrackedState(v=np.zeros(2), w=array)


def test_a_tracked_array_without_elements_is_a_tensor_like_any_other():
    one = regroup.TrackedState(
        a=np.arange(3.0), nothing=np.zeros((0, 4), np.float32), b=np.ones(2, np.int32)
    )
    assert one.tensors() == [
        ("a", "float64", [3]),
        ("nothing", "float32", [0, 4]),
        ("b", "int32", [2]),
    ]
    assert [len(piece) for piece in one.save()] == [24, 0, 8]
    other = regroup.TrackedState(
        a=np.zeros(3), nothing=np.zeros((0, 4), np.float32), b=np.zeros(2, np.int32)
    )
    other.load(memoryview(b"".join(one.save())))
    assert b"".join(other.save()) == b"".join(one.save())


def test_a_loop_that_was_left_may_be_entered_again():
    """The sum of the last step is readable until then."""
    weight = np.zeros(5, np.float32)
    session = join(weight, samples=4, batch=2, epochs=3)
    seen = []
    for _ in range(3):
        for step in session:
            for shard in step:
                shard.gradient[:] = len(shard.samples) / step.samples
            seen.append(step.number)
            if step.number % 2 == 0:
                break
        weight += step.gradient
    assert seen == [1, 2, 3, 4, 5, 6] and weight.tolist() == [3.0] * 5
    assert list(session) == []
    session.finish()


def test_steps_use_each_sample_once_per_epoch_and_sum_the_shards():
    weight = np.zeros(5, np.float32)
    session = join(weight, samples=21, batch=8, epochs=2)
    used, numbers, firsts, sizes = [[], []], [], [], []
    for step in session:
        numbers.append(step.number)
        firsts.append(step.first_of_epoch)
        sizes.append(step.samples)
        for shard in step:
            assert 0 <= shard.leaf < 4
            shard.gradient[:] = sum(shard.samples) / step.samples
            used[step.epoch] += shard.samples
        weight -= step.gradient
    session.finish()
    assert [sorted(epoch) for epoch in used] == [list(range(21))] * 2
    assert used[0] != used[1]
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert sizes == [8, 8, 5] * 2
    assert firsts == [True, False, False] * 2
    assert session.last_step == 6
    batches = [used[e][b : b + 8] for e in range(2) for b in range(0, 21, 8)]
    np.testing.assert_allclose(-weight, sum(sum(b) / len(b) for b in batches), rtol=1e-6)


def test_a_ledger_of_samples_that_the_script_chooses_verifies(tmp_path, monkeypatch):
    monkeypatch.setenv("REGROUP_SHARDS", "2")
    monkeypatch.setenv("REGROUP_LEDGER", str(tmp_path))
    session = join(np.zeros(3, np.float32), batch=4, samples=8, epochs=1, own_order=True)
    for step in session:
        for shard in step:
            shard.gradient[:] = 1
            shard.record_samples([index + 1 for index in shard.samples])
    session.finish()
    done = subprocess.run(
        ["regroup", "ledger", "verify", tmp_path], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout
    assert "their order is that of a sampler of the script" in done.stdout


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_ledger_names_what_a_shard_took(tmp_path, monkeypatch):
    monkeypatch.setenv("REGROUP_SHARDS", "2")
    monkeypatch.setenv("REGROUP_LEDGER", str(tmp_path))
    weight = np.zeros(3, np.float32)
    session = join(weight, batch=4)
    for step in session:
        for shard in step:
            shard.gradient[:] = 1
            if step.number == 1:
                shard.record_samples(np.arange(10 * shard.leaf, 10 * shard.leaf + 2))
        with pytest.raises(regroup.Refused, match="^record_samples: the loop has left shard 1$"):
            shard.record_samples([1])
        assert step.gradient.tolist() == [2, 2, 2]
        if step.number == 2:
            break
    session.finish()
    _, first, second = map(json.loads, (tmp_path / "ledger.jsonl").read_text().splitlines())
    assert [count for count, _ in first["leaves"]] == [2, 2]
    assert first["leaves"][0] != first["leaves"][1]
    assert second["leaves"] == [[0, "00000000"]] * 2


def test_an_observer_hears_each_moment_and_cannot_harm(capsys):
    heard = []

    def observer(moment, step):
        heard.append((moment, step))
        if moment == "sealed":
            raise ValueError("of the observer")

    session = join(np.zeros(3, np.float32), samples=4, batch=4, epochs=1, observer=observer)
    for step in session:
        for shard in step:
            shard.gradient[:] = 1
    session.finish()
    assert heard[:2] == [("revoked", 1), ("joined", 1)]
    of_step = [("sealed", 1)] * 4 + [("gathered", 1), ("reduced", 1), ("committed", 1)]
    assert heard[2:9] == of_step


def test_a_result_is_read_only_and_outlives_the_session():
    session = join(np.zeros(3), dtype="float64")
    step = next(iter(session))
    for shard in step:
        shard.gradient[:] = 0.25
    result = step.gradient
    with pytest.raises(ValueError, match="read-only"):
        result[0] = 1
    del session, step, shard
    assert result.dtype == np.float64
    assert result.tolist() == [1, 1, 1]


def test_sessions_follow_one_another_in_one_process(run_python):
    """Each gives its robust lock back before its arena is unmapped; a segmentation fault
    otherwise."""
    run_python(
        "-c",
        "import array, regroup\n"
        "for n in (1, 1 << 16, 1, 1 << 20, 7):\n"
        "    state = regroup.TrackedState(w=array.array('f', [0]))\n"
        "    session = regroup.Session(state, elements=n)\n"
        "    session.finish()\n"
        "    del session\n",
    )


def test_seeds_differ_between_shards_and_steps_and_are_the_same_again():
    def seeds():
        session = join(np.zeros(1, np.float32), samples=8, batch=8, epochs=3)
        found = []
        for step in session:
            for shard in step:
                shard.gradient[:] = 0
                found.append(shard.seed)
            assert step.gradient == 0
        return found

    first = seeds()
    assert len(set(first)) == 12
    assert seeds() == first


def test_a_collective_section_sums_broadcasts_and_returns_a_value():
    session = join(np.zeros(1, np.float32))
    array = np.arange(4, dtype=np.int64)

    def body(communicator):
        communicator.barrier()
        communicator.allreduce(array)
        communicator.broadcast(array, root=0)
        assert session.rank == communicator.rank
        return communicator.size, array.tolist()

    assert session.collective(body) == (1, [0, 1, 2, 3])
    assert session.region(body) == (1, [0, 1, 2, 3]), "the old name"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.broadcast(np.zeros(1), root=1), "root 1: expected a rank from 0 to 0"),
        (lambda c: c.allreduce(np.zeros(1, np.float16)), "float32, float64, int32 or int64"),
        (
            lambda c: c.broadcast(np.zeros((2, 3)).T),
            "broadcast: expected a contiguous, writable array",
        ),
        (
            lambda c: c.allreduce(np.broadcast_to(np.zeros(1), 2)),
            "allreduce: expected a contiguous",
        ),
        (
            lambda c: c.broadcast(torch.zeros(2, 3).t()),
            "in CPU memory, got torch.Tensor that is not contiguous",
        ),
        (lambda c: c.allreduce(torch.zeros(2, device="meta")), "got torch.Tensor on meta$"),
        (
            lambda c: c.allreduce(np.broadcast_to(np.zeros(2), (1, 2))),
            "got ndarray that is read-only$",
        ),
        (lambda c: c.allreduce("weights"), "got str$"),
    ],
)
def test_a_communicator_refuses_what_it_cannot_do(call, message):
    with pytest.raises(regroup.Refused, match=message):
        join(np.zeros(1, np.float32)).collective(call)


def test_what_a_collective_section_raises_comes_up_and_ends_the_session():
    session = join(np.zeros(1, np.float32))
    lent = []
    session.collective(lent.append)
    with pytest.raises(regroup.Refused, match="its collective section has ended"):
        lent[0].barrier()
    with pytest.raises(ZeroDivisionError):
        session.collective(lambda communicator: 1 // 0)
    with pytest.raises(regroup.Refused, match="a collective section failed"):
        session.finish()


def test_calls_in_the_wrong_order_from_inside_and_from_another_thread_are_refused():
    session = join(np.zeros(1, np.float32))
    with pytest.raises(regroup.Refused, match="called from inside"):
        session.collective(lambda communicator: session.finish())
    session = join(np.zeros(1, np.float32))
    next(iter(session))
    with pytest.raises(regroup.Refused, match="the previous step was committed"):
        next(iter(session))
    refused = []

    def other():
        try:
            session.finish()
        except regroup.Refused as error:
            refused.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(timeout=30)
    assert refused == ["session: called on a thread other than the one that called join()"]


def test_tracked_state_is_saved_and_loaded_byte_for_byte():
    rng = np.random.default_rng(1)
    ours, theirs = (
        {"a": rng.normal(size=(3, 5)), "b": rng.integers(0, 9, 4, np.int32), "empty": np.zeros(0)}
        for _ in range(2)
    )
    source, target = regroup.TrackedState(**ours), regroup.TrackedState(**theirs)
    target.load(memoryview(b"".join(source.save())))
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])
    assert source.describe() == target.describe() == "a:120;b:16;empty:0"
    with pytest.raises(regroup.Error, match="state: got 1 bytes, expected 136"):
        target.load(memoryview(b"x"))
    with pytest.raises(regroup.Refused, match="contiguous and writable"):
        regroup.TrackedState(a=np.zeros((4, 4)).T[1:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"elements": 0}, "at least 1 gradient element"),
        ({"elements": 1, "dtype": "int8"}, "expected gradients of float32 or float64, got int8"),
        ({"elements": 1, "samples": 5}, "batch of at least 1 sample"),
    ],
)
def test_join_refuses_bad_options(options, message):
    with pytest.raises(regroup.Refused, match=message):
        regroup.Session(regroup.TrackedState(), **options)


def test_a_bad_environment_is_refused(monkeypatch):
    monkeypatch.setenv("REGROUP_SHARDS", "many")
    with pytest.raises(regroup.Refused, match="REGROUP_SHARDS=many"):
        join(np.zeros(1, np.float32))


def test_the_exception_of_a_state_comes_up():
    class Bad:
        def capacity(self):
            raise LookupError("no idea")

    with pytest.raises(LookupError, match="no idea"):
        regroup.Session(Bad(), elements=1)


REPORTING = """
import subprocess
import numpy as np
import regroup
session = regroup.Session(regroup.TrackedState(w=np.zeros(1)), elements=1, samples=8, batch=4,
                          epochs=1)
for step in session:
    for shard in step:
        shard.gradient[:] = 0
    step.gradient
    session.report_loss(1 / 3)
shown = ""
while "0.33" not in shown:  # members are reported each second
    shown = subprocess.check_output(["regroup", "status"], text=True)
print(shown)
session.finish()
"""


def test_status_shows_a_loss_that_fits_its_column(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    command = ["regroup", "-np", "1:2", "--initial-size", "1", sys.executable, "-c", REPORTING]
    shown = subprocess.check_output(command, text=True, timeout=120)
    assert re.search(r" 2 +0\.333333 ", shown), shown
