"""What is built on torch.distributed works over the backend as over Gloo."""

import pytest

CASES = (
    *("ddp", "ddp_hooks", "ddp_sparse", "ddp_compiled", "fsdp1", "fsdp2", "zero1", "dtensor"),
    *("tensor_parallel", "pipelining", "checkpoint", "functional_collectives"),
)


@pytest.fixture(scope="module")
def output(run_ranks) -> str:
    """Of one job for all cases, since an import of torch takes longer than a case."""
    return run_ranks(2, "_peers.py", *CASES, status=None)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_get_what_gloo_gives(output, case):
    assert output.count(f"{case}: rank ") == 2, output


def test_a_mesh_of_replicas_and_shards_gets_what_gloo_gives(run_ranks):
    out = run_ranks(4, "_peers.py", "hsdp")
    assert out.count("is close to Gloo") == 4, out


def test_a_group_in_python_gets_what_gloo_gives(run_ranks, no_binary):
    no_binary()
    cases = [case for case in CASES if case != "ddp_compiled"]
    out = run_ranks(2, "_peers.py", *cases)
    assert "the process groups of this job are in Python" in out
    for case in cases:
        assert out.count(f"{case}: rank ") == 2, out
