"""Members under the launcher: whatever happens to them, the weights are those of the undisturbed
run."""

import collections
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest
from regroup.torch_checkpoint import load, newest_checkpoint

MEMBER = pathlib.Path(__file__).parent / "_member.py"
SAMPLES, BATCH, EPOCHS, SHARDS = 61, 24, 10, 5


def has_argument(process: pathlib.Path, folder: pathlib.Path) -> bool:
    try:
        return os.fsencode(folder) in (process / "cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return False


def ledger_in(folder: pathlib.Path) -> list[str]:
    """Its lines, without the header, which has the job. Some trainings stop early."""
    verify = subprocess.run(
        ["regroup", "ledger", "verify", "--partial", folder],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert verify.returncode == 0, verify.stdout + verify.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["ledger.jsonl", "ledger.lock"]
    return (folder / "ledger.jsonl").read_text().splitlines()[1:]


class Outcome:
    def __init__(
        self, done: subprocess.CompletedProcess, folder: pathlib.Path, *, ledger: bool = True
    ):
        self.status, self.text = done.returncode, done.stdout
        found = re.findall(r"weights sha256 (\w+) size (\d+) generation (\d+)", done.stdout)
        self.digests = {digest for digest, _, _ in found}
        self.members = len(found)
        # processes that outlive the job; a forked one has the arguments of its parent
        self.left = [p for p in pathlib.Path("/proc").glob("[0-9]*") if has_argument(p, folder)]
        self.generation = max((int(generation) for *_, generation in found), default=0)
        self.losses = re.findall(r"epoch +\d+  loss [\d.]+", done.stdout)
        self.asked = {
            p.name: [tuple(map(int, line.split())) for line in p.read_text().splitlines()]
            for p in folder.glob("asked-*")
        }
        log = folder / "log/metrics.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        assert not log.with_name("metrics.jsonl.1").exists()  # no member found another run's
        self.rows = [json.loads(line) for line in lines]
        self.ledger = ledger_in(folder / "ledger") if ledger and self.status == 0 else []

    @property
    def fetched(self) -> collections.Counter:
        return collections.Counter(one for lines in self.asked.values() for one in lines)


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Trains with so many members to begin with and faults at exact moments."""
    runtime = tempfile.mkdtemp(prefix="rg")  # short: sockets are in it
    for name in ("REGROUP_SHARDS", "REGROUP_SEED", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)

    def run(
        members: int,
        *faults: str,
        options: tuple[str, ...] = (),
        ledger: bool = True,
        environment: dict[str, str] | None = None,
    ) -> Outcome:
        folder = pathlib.Path(tempfile.mkdtemp(dir=tmp_path))
        launcher = f"regroup --oversubscribe --replace never --seed 3 --shards {SHARDS} -np 1:4"
        launcher += f" --initial-size {members}"
        launcher += f" --ledger {folder}/ledger" if ledger else ""
        command = [*launcher.split(), *options, sys.executable, str(MEMBER), str(folder), *faults]
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            env={**os.environ, **(environment or {})},
        )
        return Outcome(done, folder, ledger=ledger)

    yield run
    shutil.rmtree(runtime, ignore_errors=True)


@pytest.fixture(scope="module")
def one_member(tmp_path_factory):
    """What one member alone ends with, for these words of _member.py; it trains once for each."""
    return functools.cache(lambda *words: alone(tmp_path_factory.mktemp("alone"), *words))


@pytest.fixture(scope="module")
def undisturbed(one_member):
    outcome = one_member()
    assert outcome.losses[-1] < outcome.losses[0].replace("epoch  1", "epoch 10")
    return outcome


def alone(folder: pathlib.Path, *faults: str, ledger: bool = True) -> Outcome:
    """A world of one, without a launcher."""
    environment = os.environ | {"REGROUP_SHARDS": str(SHARDS), "REGROUP_SEED": "3"}
    if ledger:
        environment["REGROUP_LEDGER"] = str(folder / "ledger")
    environment.pop("REGROUP_AGENT", None)
    done = subprocess.run(
        [sys.executable, str(MEMBER), str(folder), *faults],
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        env=environment,
    )
    outcome = Outcome(done, folder, ledger=ledger)
    assert outcome.status == 0 and len(outcome.digests) == 1, outcome.text
    return outcome


def assert_equal(outcome: Outcome, undisturbed: Outcome, members: int) -> None:
    assert outcome.status == 0, outcome.text
    assert outcome.members == members, outcome.text
    assert outcome.digests == undisturbed.digests, outcome.text
    assert set(outcome.fetched) == set(undisturbed.fetched)  # each sample in its step
    assert outcome.ledger == undisturbed.ledger
    if outcome.generation == 1:
        assert outcome.losses == undisturbed.losses
        assert set(outcome.fetched.values()) == {1}


def test_alone_each_sample_is_fetched_once_per_epoch(undisturbed):
    steps = -(-SAMPLES // BATCH)
    epochs = collections.Counter(
        ((step - 1) // steps, index) for step, index in undisturbed.fetched
    )
    assert epochs == {(epoch, index): 1 for epoch in range(EPOCHS) for index in range(SAMPLES)}


def test_a_ledger_changes_no_bit_of_the_weights(undisturbed, tmp_path):
    assert len(undisturbed.ledger) == -(-SAMPLES // BATCH) * EPOCHS
    assert alone(tmp_path, ledger=False).digests == undisturbed.digests
    assert set(undisturbed.fetched.values()) == {1}


def test_the_number_of_members_does_not_matter(train, undisturbed):
    """Of one: test_a_new_member_takes_over_all_state begins with it."""
    outcome = train(3)
    assert_equal(outcome, undisturbed, 3)
    assert len(outcome.asked) == 3
    assert all(outcome.asked.values())  # the work is shared


def test_neither_a_kill_within_a_shard_nor_a_leave_matters(train, undisturbed):
    """Who is asked to leave loses nothing."""
    outcome = train(3, "kill=1,7", "leave=2,12")
    assert_equal(outcome, undisturbed, 1)
    assert outcome.generation == 3
    again = [one for one, times in outcome.fetched.items() if times > 1]
    assert {step for step, _ in again} <= {7}
    assert 0 < len(again) <= -(-BATCH // SHARDS) * 2  # at most the shards the dead member had
    assert max(step for step, _ in outcome.asked["asked-2"]) == 12


def test_a_new_member_takes_over_all_state(train, undisturbed):
    outcome = train(1, "grow=11,2")
    assert_equal(outcome, undisturbed, 2)
    (newcomer,) = (lines for name, lines in outcome.asked.items() if name != "asked-0")
    # from its first step on, in each
    assert {step for step, _ in newcomer} == set(range(newcomer[0][0], 31))


def test_steps_with_a_loss_that_is_nan_are_skipped_by_all_members(train, undisturbed, one_member):
    """One in each epoch; a member that joins late skips those that it catches up with."""
    skipping = one_member("nan=17")
    assert skipping.text.count("; the step is skipped") == 0  # that is on standard error
    outcome = train(3, "nan=17", "kill=1,7", "leave=2,12", "grow=15,2")
    assert_equal(outcome, skipping, 2)
    assert outcome.digests != undisturbed.digests
    told = r"^regroup: step \d+: the loss is nan in shard \d; the step is skipped$"
    assert len(re.findall(told, outcome.text, re.M)) >= EPOCHS - 1, (
        outcome.text
    )  # or rank 0 changed


def test_a_loss_that_is_nan_stops_all_members_with_one_message(train):
    outcome = train(2, "nan=17", "stop=1")
    assert (outcome.status, outcome.members) == (1, 0), outcome.text
    found = re.findall(
        r"^.*Error: step (\d): the loss is nan in shard (\d); the", outcome.text, re.M
    )
    (step, shard), *more = found
    assert not more and int(step) <= 3, outcome.text
    how = f"the job failed: .*step {step}: the loss is nan in shard {shard}"
    assert re.search(how, outcome.text), outcome.text


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "width=1,9",
            r"tensor 0\.weight is float32 \[[89], 4\] in member \d, float32 \[[89], 4\] .*"
            "; start all members from the same code and config",
        ),
        (
            "samples=1,60",
            r"; the data set has 6[01] samples, the job's 6[01]: samples are drawn by",
        ),
        (
            "threads=1,3",
            r"; threads: ([13]) here, ([13]) in the job, so that sums would differ; .*"
            r" with -x OMP_NUM_THREADS=\2",
        ),
    ],
)
def test_a_member_that_differs_is_refused(train, fault, message):
    outcome = train(2, fault)
    assert re.search(f"Refused: .*{message}", outcome.text), outcome.text
    assert (outcome.status, outcome.members) == (0, 1)  # the one that joined first trains alone


def test_a_process_group_in_an_elastic_job_is_told(train, undisturbed):
    outcome = train(2, "group=1")
    assert_equal(outcome, undisturbed, 2)
    line = "this script calls init_process_group in an elastic job: a process group keeps its ranks"
    assert outcome.text.count(line) == 1
    uneven = "join: V = 5 is not a power of two: of 2 members some compute 3 shards of a step, and"
    assert outcome.text.count(uneven) == 1


def test_a_sum_of_torch_distributed_between_shards_is_refused(train):
    outcome = train(2, "group=1", "sum=1")
    assert (outcome.status, outcome.members) == (1, 0), outcome.text
    told = (
        "Refused: step 1: all_reduce of 1 float32 inside a step: its bits depend on the number of "
        "members; use session.collective() between steps, or step.clip_grad_norm_()"
    )
    assert told in outcome.text, outcome.text


FULL = "REGROUP_TEST_FULL" in os.environ


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("members", "faults", "left", "generation"),
    [
        (3, ["kill=1,7", "leave=2,12"], 1, 3),
        (1, ["grow=11,2"], 2, 2),
        (2, ["kill=0,1"], 1, 2),
    ],
    ids=["kill and leave", "grow", "kill in the first step"],
)
def test_a_data_loader_gives_equal_weights_whatever_happens(
    train, one_member, undisturbed, workers, members, faults, left, generation
):
    """The members leave by a SIGTERM to their process group, which has the workers too."""
    if workers == 0 and faults != ["kill=0,1"] and not FULL:
        pytest.skip(
            "with a sampler of its own, a loader without workers has all three: --full only"
        )
    undisturbed_loader = one_member("loader=0")
    outcome = train(members, f"loader={workers}", *faults)
    assert outcome.status == 0, outcome.text
    assert (outcome.members, outcome.generation) == (left, generation), outcome.text
    assert outcome.digests == undisturbed_loader.digests != undisturbed.digests, outcome.text
    assert outcome.ledger == undisturbed_loader.ledger == undisturbed.ledger
    assert outcome.left == []


def test_a_sampler_of_the_scripts_own_gives_equal_weights_whatever_happens(
    train, undisturbed, tmp_path
):
    one = alone(tmp_path, "loader=0,1")
    outcome = train(3, "loader=0,1", "kill=1,7", "leave=2,12", "grow=15,2")
    assert (outcome.status, outcome.members) == (0, 2), outcome.text
    assert outcome.digests == one.digests
    assert outcome.ledger == one.ledger != undisturbed.ledger  # the indices that it gave


def test_all_that_join_takes_survives_a_kill_a_leave_and_a_join(train, one_member):
    """Two optimizers, schedulers, a scaler, averaged weights and the result of an evaluation have
    the bits of the undisturbed run; a member dies while it evaluates; rank 0 stops all after epoch
    9; callbacks hear of changes."""
    loop = one_member("loop=1")
    assert loop.text.count(": epoch ") == 8  # the step that is left by break is not told
    outcome = train(3, "loop=1", "kill=1,7", "leave=2,12", "grow=15,2", "fall=0,21")
    assert_equal(outcome, loop, 1)
    assert "member 2: leaves after step 12\n" in outcome.text
    assert "member 0: world of 2\n" in outcome.text  # after the kill
    assert "member 0: world of 1\n" in outcome.text  # after the leave
    assert "member 0: epoch 5 over\n" in outcome.text


@pytest.mark.parametrize(
    ("members", "faults", "left", "generation"),
    [
        (3, ["prepare=0,5", "kill=1,7", "leave=2,12", "grow=15,2"], 2, 4),
        (3, ["prepare=2,5", "kill=0,1", "leave=2,3"], 1, 3),
    ],
    ids=["kill and leave and grow", "with workers"],
)
def test_a_prepared_loop_gives_equal_weights_whatever_happens(
    train, one_member, members, faults, left, generation
):
    """A loop of DistributedDataParallel."""
    undisturbed = one_member("prepare=0,5")
    outcome = train(members, *faults)
    assert outcome.status == 0, outcome.text
    assert (outcome.members, outcome.generation) == (left, generation), outcome.text
    assert outcome.digests == undisturbed.digests
    assert outcome.ledger == undisturbed.ledger
    assert outcome.left == []


@pytest.mark.parametrize(
    "loop",
    [[], ["loader=2"], ["loop=1"], ["prepare=0,5"], ["stream=1", "loader=1"], ["stream=2"]],
    ids=" ".join,
)
def test_audits_change_no_bit_whatever_happens(train, one_member, loop):
    """Second members compute what the first ones do, in each kind of loop."""
    if loop not in ([], ["loader=2"]) and not FULL:
        pytest.skip("the session hands the leaves out, in each loop alike: --full only")
    undisturbed = one_member(*loop)
    faults = ("kill=1,7", "leave=2,12", "grow=15,2")
    outcome = train(3, *loop, *faults, options=("--audit", "1"))
    assert outcome.status == 0, outcome.text
    assert outcome.digests == undisturbed.digests
    assert outcome.ledger == undisturbed.ledger
    assert "audit: " not in outcome.text
    if not loop:  # both members of a step without a fault fetch the samples of a leaf
        twice = {step for (step, _), times in outcome.fetched.items() if times == 2}
        assert len(twice) > 15


@pytest.mark.parametrize("loop", [["loader=1"], ["prepare=0,5"]], ids=["worker", "prepare"])
def test_a_stream_gives_equal_weights_whatever_happens(train, one_member, undisturbed, loop):
    """It draws the order of its samples, and what they are, from the generators of random and
    torch."""
    one = one_member("stream=1", loop[0].replace("=1", "=0"))
    outcome = train(3, "stream=1", *loop, "kill=1,7", "leave=2,12", "grow=15,2")
    assert (outcome.status, outcome.members) == (0, 2), outcome.text
    assert outcome.digests == one.digests
    assert outcome.ledger == one.ledger != undisturbed.ledger  # each epoch in its order
    assert outcome.left == []


def test_a_stream_in_parts_is_read_by_those_who_compute_its_shards(train, one_member):
    one = one_member("stream=2")
    each = dict.fromkeys(range(SAMPLES), EPOCHS)
    assert collections.Counter(number for _, number in one.fetched.elements()) == each
    calm = train(3, "stream=2")
    assert calm.digests == one.digests and calm.ledger == one.ledger
    read = [{number % SHARDS for _, number in lines} for lines in calm.asked.values()]
    assert sorted(part for parts in read for part in parts) == list(range(SHARDS))  # once each
    assert collections.Counter(number for _, number in calm.fetched.elements()) == each
    outcome = train(3, "stream=2", "kill=1,7", "leave=2,12", "grow=15,2")
    assert (outcome.status, outcome.members) == (0, 2), outcome.text
    assert outcome.digests == one.digests
    assert outcome.ledger == one.ledger


def test_a_part_that_has_a_state_is_not_read_again(train, one_member):
    """By a member that takes over shards in a step, after one, or that joins."""
    one = one_member("stream=3")
    outcome = train(3, "stream=3", "kill=1,8", "leave=2,13", "grow=16,2")
    assert (outcome.status, outcome.members) == (0, 2), outcome.text
    assert outcome.digests == one.digests
    assert outcome.ledger == one.ledger
    read = [line for lines in outcome.asked.values() for line in lines]
    assert len(read) >= SAMPLES * EPOCHS
    assert all((step - 1) % 3 == number // 25 for step, number in read), outcome.asked


@pytest.mark.parametrize("loop", ["loader=2", "prepare=1,2"])
def test_accumulated_gradients_are_equal_whatever_happens(train, one_member, loop):
    """Some shards have fewer samples than they would have batches. The prepared loop calls
    optimizer.step() in each third iteration."""
    words = ["loader=0" if loop == "loader=2" else "prepare=0,2", "accumulate=3"]
    one = one_member(*words)
    outcome = train(3, loop, "accumulate=3", "kill=1,7", "leave=2,9", "grow=11,2")
    assert (outcome.status, outcome.members) == (0, 2), outcome.text
    assert outcome.digests == one.digests
    assert outcome.ledger == one.ledger
    assert outcome.left == []


def test_a_member_that_catches_up_runs_a_prepared_loop_too(train, tmp_path, monkeypatch):
    """It applies steps that others have committed meanwhile; evaluation and stop_if() in the tail
    of an epoch are its own."""
    one = alone(tmp_path, "prepare=0,5", "epochs=40")
    options = ("--learner-state", "1", "--learner-steps", "8")
    outcome = train(1, "prepare=0,5", "epochs=40", "learner=8", options=options)
    assert (outcome.status, outcome.members) == (0, 2), outcome.text
    assert outcome.digests == one.digests
    assert outcome.ledger == one.ledger
    assert "member 0: 0 stand-ins\n" in outcome.text
    assert re.search(r"member 1: [1-9]\d* stand-ins\n", outcome.text), outcome.text


def test_a_member_without_a_shard_runs_a_prepared_loop_too(train, tmp_path, monkeypatch):
    """Of three members, two have shards."""
    monkeypatch.setattr(sys.modules[__name__], "SHARDS", 2)
    one = alone(tmp_path, "prepare=0,7")
    outcome = train(3, "prepare=0,7", "kill=2,5")
    assert (outcome.status, outcome.members) == (0, 2), outcome.text
    assert re.search(r": [1-9]\d* stand-ins\n", outcome.text), outcome.text
    assert outcome.digests == one.digests
    assert outcome.ledger == one.ledger
    for epoch in range(EPOCHS):
        assert outcome.text.count(f": epoch {epoch} over") >= 2


@pytest.mark.parametrize("what", ["gan=1", "optimizers=1", "layers=1", "layers=2"])
def test_other_trainings_give_equal_weights_whatever_happens(train, tmp_path, what):
    """Two networks with steps of their own; each optimizer of torch.optim, and a log; layers that
    share a weight, and that are unfrozen and frozen on the way, also compiled."""
    if what == "layers=2" and not FULL:
        pytest.skip("the compiler takes longer than the training: --full only")
    one = alone(tmp_path, what)
    outcome = train(3, what, "kill=0,7", "leave=2,12", "grow=15,2")
    assert (outcome.status, outcome.members) == (0, 2), outcome.text
    assert outcome.digests == one.digests
    assert outcome.ledger == one.ledger
    assert set(outcome.fetched) == set(one.fetched)
    if what == "optimizers=1":  # rank 0 changed
        rows, expected = outcome.rows, one.rows
        assert [row["step"] for row in rows] == list(range(1, 31))
        for name in ("loss", "norm", "epoch", "samples"):
            assert [row[name] for row in rows] == [row[name] for row in expected]
        assert len({row["generation"] for row in rows}) == outcome.generation == 4


@pytest.mark.parametrize(
    ("loop", "members", "faults"),
    [
        ([], 3, ["kill=0,6", "grow=9,3", "leave=2,14"]),
        (["prepare=0,5"], 2, ["kill=1,7", "grow=18,2"]),
    ],
    ids=["between the changes", "after them, prepared"],
)
def test_a_model_that_grows_has_equal_weights_whatever_happens(
    train, one_member, loop, members, faults
):
    """A member is killed within a change; one joins between two changes, or after both. How much
    is reserved, changes nothing."""
    expected = one_member("changes=1", *loop)
    outcome = train(members, "changes=1", "reserve=223", *loop, *faults)
    assert (outcome.status, outcome.members) == (0, 2), outcome.text
    assert outcome.digests == expected.digests, outcome.text
    assert outcome.ledger == expected.ledger


def test_a_model_that_grows_on_gpus_has_equal_weights(train, one_member, fake_gpu):
    """Plane cuda, over the fake driver: a member leaves with a change, one joins after both."""
    faults = ["leave=1,6", "grow=15,2"]
    options = ("--plane", "cuda")
    outcome = train(2, "changes=1", *faults, options=options, ledger=False, environment=fake_gpu)
    assert (outcome.status, outcome.members) == (0, 2), outcome.text
    assert outcome.digests == one_member("changes=1").digests, outcome.text


def test_a_model_that_grows_goes_on_from_checkpoints(train, one_member, tmp_path):
    """From one before the last change, and from one after it. One is due after step 6, which
    changes the model."""
    words = f"--checkpoint {tmp_path}/kept --checkpoint-interval 6 --term-grace 60"
    for last, resumed in ((9, "generation 1"), (16, "resumes after step 9"), (0, "after step 16")):
        faults = [f"leave=0,{last}"] if last else []
        outcome = train(1, "changes=1", *faults, options=tuple(words.split()), ledger=False)
        assert (outcome.status != 0) == bool(last) and resumed in outcome.text, outcome.text
        assert "failed" not in outcome.text, outcome.text
    assert outcome.digests == one_member("changes=1").digests
    loaded = load(newest_checkpoint(tmp_path / "kept"))
    assert [name for name, _ in loaded["changes"]] == ["deepen", "replace_last"]
    assert loaded["model"]["6.weight"].shape == (1, 8) and "6.bias" not in loaded["model"]


def test_members_that_change_their_models_otherwise_end_with_the_changes(train):
    outcome = train(2, "changes=1", "differ=1")
    assert outcome.status == 1
    told = "members have made different changes of the model: this one deepen(width=5)"
    assert told in outcome.text, outcome.text
    outcome = train(2, "changes=1", "wider=1", ledger=False)
    told = r"refused: its model differs .*: tensor for changes \(reserve\) is elements \[60\d\] in"
    assert re.search(told, outcome.text), outcome.text


@pytest.mark.parametrize("loop", [[], ["prepare=0,5"]], ids=["join", "prepare"])
def test_the_launcher_shows_the_progress_when_rank_0_dies(train, loop):
    outcome = train(3, *loop, "kill=0,7", options=("--progress",))
    assert outcome.status == 0, outcome.text
    shown = re.findall(r"^regroup: (epoch .*)", outcome.text, re.MULTILINE)
    loss = "" if loop else r"  loss \d\.[\de-]+"  # the prepared loop records none
    speed = r"(  [\d.]+ samples/s)?"
    last = rf"epoch 10/10 100 %  step 30{loss}{speed}  2 members \(generation 2\)"
    assert re.fullmatch(last, shown[-1]), outcome.text


@pytest.mark.parametrize(
    ("members", "faults", "left"),
    [
        (3, ["kill=1,7", "leave=2,12", "grow=15,2"], 2),
        (1, ["loader=2", "grow=11,2"], 2),
        (3, ["loop=1", "kill=1,7", "leave=2,12", "grow=15,2"], 2),
        (3, ["prepare=0,5", "kill=1,7", "leave=2,12", "grow=15,2"], 2),
        (3, ["nan=17", "kill=1,7", "leave=2,12"], 1),
    ],
    ids=["plain", "with workers", "loop", "prepared", "nan"],
)
def test_a_job_on_devices_has_the_bits_of_one_member_on_the_cpu(
    train, one_member, members, faults, left
):
    expected = one_member(*(one for one in faults if not re.match("kill|leave|grow", one)))
    outcome = train(members, "device=1", *faults)
    assert (outcome.status, outcome.members) == (0, left), outcome.text
    assert outcome.digests == expected.digests, outcome.text


@pytest.mark.parametrize(
    ("members", "faults", "left"),
    [
        (2, ["loop=1", "kill=1,7", "grow=11,2"], 2),
        (2, ["nan=17", "kill=1,7"], 1),
    ],
    ids=["loop", "nan"],
)
def test_sums_on_a_gpu_have_the_bits_of_one_member_on_the_cpu(
    train, one_member, fake_gpu, members, faults, left
):
    """Plane cuda, over the fake driver: a member that cannot use it is refused."""
    expected = one_member(*(one for one in faults if not re.match("kill|leave|grow", one)))
    options = ("--plane", "cuda")
    outcome = train(members, *faults, options=options, ledger=False, environment=fake_gpu)
    assert (outcome.status, outcome.members) == (0, left), outcome.text
    assert outcome.digests == expected.digests, outcome.text


def test_sums_between_gpus_of_hosts_have_the_bits_of_one_member_on_the_cpu(
    train, one_member, fake_gpu, tmp_path
):
    """Plane nccl, over the fakes: member 1 dies, the next one joins, and NCCL connects anew."""
    build = pathlib.Path(shutil.which("regroup")).parents[1]
    folder = tempfile.mkdtemp(dir=tmp_path)
    environment = {
        **fake_gpu,
        "LD_LIBRARY_PATH": f"{build}/tests/fakes/nccl/2.28.9:{fake_gpu['LD_LIBRARY_PATH']}",
        "REGROUP_FAKE_NCCL": f"folder={folder}",
    }
    options = ("--plane", "nccl", "--launcher", "fork", "-H", "a:1,b:1,c:1")
    faults = ["loop=1", "kill=1,7", "grow=11,2", "rails=1"]
    outcome = train(2, *faults, options=options, ledger=False, environment=environment)
    assert (outcome.status, outcome.members) == (0, 2), outcome.text
    assert outcome.digests == one_member("loop=1").digests, outcome.text
    groups = pathlib.Path(folder, "groups").read_text().splitlines()
    counts = collections.Counter(line.split()[1] for line in groups)  # of processes
    assert sum(count >= 3 for count in counts.values()) >= 2, counts  # a start and a sum
