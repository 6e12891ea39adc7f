"""Registers the torch.distributed backend "regroup".

torch imports this package with itself, by the entry point `torch.backends`, in every process of
every script. So it stands apart from `regroup`, whose import has effects, and loads nothing native:
`regroup._torch_backend` does once a process group is made.
"""

import sys
from typing import Any

NAME = "regroup"


def register() -> None:
    """Registers the backend for `init_process_group("regroup")`. Does nothing if torch is built
    without torch.distributed. Never raises: an exception would break `import torch`."""
    try:
        import torch.distributed as dist

        if dist.is_available() and NAME not in dist.Backend.backend_list:
            dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    except Exception as error:  # noqa: BLE001
        print(f"regroup: no torch.distributed backend: {error}", file=sys.stderr)


def _create(options: Any, _: object) -> Any:
    from regroup._torch_backend import create

    return create(options)
