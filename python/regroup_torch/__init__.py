"""Registers the torch.distributed backend "regroup".

torch imports this package with itself, by the entry point `torch.backends`, in every process of
every script. So it stands apart from `regroup`, whose import has effects, and loads nothing native:
`regroup._torch_backend` does once a process group is made.
"""

import functools
import os
import sys
from typing import Any

NAME = "regroup"
# Set by `regroup --torch-backend replace`.
VARIABLE = "REGROUP_TORCH_BACKEND"


def register() -> None:
    """Registers the backend for `init_process_group("regroup")`. Does nothing if torch is built
    without torch.distributed. Never raises: an exception would break `import torch`."""
    try:
        import torch.distributed as dist

        if dist.is_available() and NAME not in dist.Backend.backend_list:
            dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
            if replaces_gloo():
                _replace_gloo()
    except Exception as error:  # noqa: BLE001
        print(f"regroup: no torch.distributed backend: {error}", file=sys.stderr)


def replaces_gloo() -> bool:
    return os.environ.get(VARIABLE) == "replace"


def _create(options: Any, _: object) -> Any:
    from regroup._torch_backend import create

    return create(options)


def replaced(backend: str, has_cuda: bool) -> str:
    """`backend` as scripts name it, with this one for CPU tensors in place of Gloo."""
    if backend in ("", "undefined"):
        return f"cpu:{NAME},cuda:nccl" if has_cuda else NAME
    if backend == "gloo":
        return NAME
    pairs = [part.split(":", 1) for part in backend.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        return backend
    return ",".join(
        f"{device}:{NAME if (device, name) == ('cpu', 'gloo') else name}" for device, name in pairs
    )


def _replace_gloo() -> None:
    """Every process group that would use Gloo for CPU tensors uses this backend, with the name that
    the script gave. torch makes all process groups in one function."""
    import torch
    from torch.distributed import distributed_c10d as c10d

    make = c10d._new_process_group_helper

    @functools.wraps(make)
    def helper(size: int, rank: int, ranks: list, backend: Any, *rest: Any, **options: Any) -> Any:
        chosen = replaced(str(backend or ""), torch.cuda.is_available())
        if chosen == str(backend):
            return make(size, rank, ranks, backend, *rest, **options)
        if rank == 0 and not helper.told:
            print(
                f"regroup: backend {chosen} in place of {backend} (--torch-backend)",
                file=sys.stderr,
            )
            helper.told = True
        made = make(size, rank, ranks, c10d.Backend(chosen), *rest, **options)
        group = made[0]
        if group in c10d._world.pg_map:  # this rank is in the group
            c10d._world.pg_map[group] = (c10d.Backend(str(backend)), c10d._world.pg_map[group][1])
        return made

    helper.told = False
    c10d._new_process_group_helper = helper
