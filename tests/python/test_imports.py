"""regroup, torch, tensorflow and h5py live in one process, whatever comes first, and all of them
work."""

import os

import pytest

# Every ordered pair of the four occurs, and each comes first; the long run takes all 24 orders.
ORDERS = [
    "tensorflow torch h5py regroup",
    "regroup h5py torch tensorflow",
    "torch regroup h5py",
    "h5py regroup torch",
]

PROGRAM = """
import importlib, sys, tempfile
order = sys.argv[1].split()
for name in order:
    importlib.import_module(name)
import h5py, regroup.torch, torch

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.ones(4, 3), torch.zeros(4, 1))
before = model.weight.detach().clone()
session = regroup.torch.join(model, optimizer, data, batch_size=4, epochs=1)
for step in session:
    for x, y in step:
        torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
session.finish()
assert not torch.equal(model.weight, before)

if "tensorflow" in order:
    import tensorflow as tf
    with tf.GradientTape() as tape:
        w = tf.Variable(2.0)
        loss = w * w
    assert float(tape.gradient(loss, w)) == 4.0

with tempfile.TemporaryDirectory() as folder:
    with h5py.File(folder + "/weights.h5", "w") as file:
        file["weight"] = model.weight.detach().numpy()
    with h5py.File(folder + "/weights.h5") as file:
        assert (file["weight"][:] == model.weight.detach().numpy()).all()

try:
    regroup.torch.join(model, optimizer, data, batch_size=0, epochs=1)
except regroup.Refused:
    print("all of them work")
"""


def orders():
    if "REGROUP_TEST_FULL" not in os.environ:
        return ORDERS
    import itertools

    return [" ".join(order) for order in itertools.permutations(ORDERS[0].split())]


@pytest.mark.parametrize("order", orders())
def test_any_order_works_and_trains(order, run_python):
    output = run_python("-c", PROGRAM, order, TF_CPP_MIN_LOG_LEVEL="3")
    assert output.splitlines()[-1] == "all of them work"


LAZY = """
import sys, regroup
assert "torch" not in sys.modules
print(callable(regroup.torch.join), "torch" in sys.modules)
"""


def test_a_submodule_needs_no_import_of_its_own(run_python):
    assert run_python("-c", LAZY) == "True True\n"
