#!/usr/bin/env bash
# A StatefulDataLoader with a generator of its own resumes in another order than it would have gone on with.
# Versions: torchdata 0.11.0, torch 2.13.0, numpy 2.4.6 (PyPI), Python 3.11.
#
# StatefulDataLoader has a state_dict(), so that a job which was interrupted goes on with the samples that are left, and
# one passes a generator to make the order repeatable. Two ways of passing it lose what they promise, without a word:
# - generator= of the loader, without workers: the epoch goes on as it would have; each later epoch has another order than
#   that of the undisturbed run. The loader and its sampler draw from one generator, and only the sampler's place in it is
#   saved. With workers both draw in another order, and the run is right.
# - torch's own RandomSampler(generator=): its state is not saved, so a second epoch that is resumed goes on in the order
#   of the first: some of its samples come twice and others never.
# Without a generator, and with torchdata's own RandomSampler(generator=), the resumed run is the undisturbed one.
#
# Output seen:
#   no generator                     : as undisturbed
#   generator=, no workers           : other order from epoch 3 on
#   generator=, 2 workers            : as undisturbed
#   RandomSampler of torch           : epoch 2 has 6 samples twice, 6 never
#   RandomSampler of torchdata       : as undisturbed
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchdata==0.11.0 2>"$dir/pip"

cat >"$dir/resume.py" <<'PY'
import torch
import torchdata.stateful_dataloader.sampler as stateful
from torchdata.stateful_dataloader import StatefulDataLoader

DATA = list(range(23))
SAVED = 8  # batches; an epoch has 6
EPOCHS = 4


def generator():
    return torch.Generator().manual_seed(5)


def epochs(loader, count, after=0, saved=None):
    """Epochs as lists of samples; keeps in `saved` the state after batch `after`."""
    out, batches = [], 0
    for _ in range(count):
        out.append([])
        for batch in loader:
            out[-1] += batch.tolist()
            batches += 1
            if batches == after:
                saved.update(loader.state_dict())
    return out


def check(name, **options):
    if callable(options.get("sampler")):
        made = options.pop("sampler")
        make = lambda: StatefulDataLoader(DATA, batch_size=4, sampler=made(DATA, generator=generator()))
    else:
        seeded = options.pop("generator", False)
        make = lambda: StatefulDataLoader(
            DATA, batch_size=4, shuffle=True, **options, **({"generator": generator()} if seeded else {})
        )
    state = {}
    torch.manual_seed(0)
    undisturbed = epochs(make(), EPOCHS, SAVED, state)
    torch.manual_seed(0)
    loader = make()
    loader.load_state_dict(state)
    resumed = epochs(loader, EPOCHS - 1)
    begun = undisturbed[1][: (SAVED - 6) * 4]  # of epoch 2, before the state was taken
    second = begun + resumed[0]
    twice = len(second) - len(set(second))
    if twice:
        found = f"epoch 2 has {twice} samples twice, {len(set(DATA) - set(second))} never"
    else:
        same = [second, *resumed[1:]]
        other = [n + 2 for n, epoch in enumerate(same) if epoch != undisturbed[n + 1]]
        found = f"other order from epoch {other[0]} on" if other else "as undisturbed"
    print(f"{name:33}: {found}")


if __name__ == "__main__":
    check("no generator")
    check("generator=, no workers", generator=True)
    check("generator=, 2 workers", generator=True, num_workers=2)
    check("RandomSampler of torch", sampler=torch.utils.data.RandomSampler)
    check("RandomSampler of torchdata", sampler=stateful.RandomSampler)
PY
timeout 300 "$dir/venv/bin/python" "$dir/resume.py" >"$dir/out" 2>"$dir/errors" || { cat "$dir/errors" >&2; exit 1; }
cat "$dir/out"
diff <(sed 's/ *: /: /' "$dir/out") - <<'TXT'
no generator: as undisturbed
generator=, no workers: other order from epoch 3 on
generator=, 2 workers: as undisturbed
RandomSampler of torch: epoch 2 has 6 samples twice, 6 never
RandomSampler of torchdata: as undisturbed
TXT
echo "seen: a StatefulDataLoader with a generator resumes another order: later epochs, or samples twice and never"
