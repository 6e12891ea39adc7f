"""Train a small transformer on the characters of a text, elastically:
regroup -np 1:4 python transformer.py [--text FILE]. The text is the licence of this project.
"""

import argparse
import pathlib

import regroup.torch
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import Dataset

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument(
    "--text", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "LICENSE"
)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--log", help="a folder for the values of each step")
args = parser.parse_args()
torch.manual_seed(0)

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 64, 4, 2, 64


class Characters(Dataset):
    """Windows of a text, half a window apart: characters, and those that follow each."""

    def __init__(self, text):
        self.alphabet = sorted(set(text))
        code = {character: number for number, character in enumerate(self.alphabet)}
        self.codes = torch.tensor([code[character] for character in text])

    def __len__(self):
        return max(0, (len(self.codes) - CONTEXT - 1) // (CONTEXT // 2))

    def __getitem__(self, index):
        window = self.codes[index * CONTEXT // 2 :][: CONTEXT + 1]
        return window[:-1], window[1:]


class Transformer(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.characters = nn.Embedding(characters, WIDTH)
        self.positions = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            HEADS,
            4 * WIDTH,
            dropout=0.1,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, characters)
        self.out.weight = self.characters.weight  # tied
        nn.init.normal_(self.out.weight, std=0.02)

    def forward(self, codes):
        length = codes.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.characters(codes) + self.positions[:length]
        return self.out(self.layers(hidden, mask=mask, is_causal=True))


text = Characters(args.text.read_text())
model = Transformer(len(text.alphabet))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
steps = args.epochs * -(-len(text) // BATCH)
schedule = OneCycleLR(optimizer, 3e-3, total_steps=steps)
session = regroup.torch.join(
    model,
    optimizer,
    text,
    batch_size=BATCH,
    epochs=args.epochs,
    schedulers=[schedule],
    log=args.log,
)

for step in session:
    for codes, targets in step:
        with torch.autocast("cpu", torch.bfloat16):
            predicted = model(codes)
        step.backward(
            nn.functional.cross_entropy(predicted.float().flatten(0, 1), targets.flatten())
        )
    step.clip_grad_norm_(1.0)
    step.apply()
    if step.end_of_epoch:
        session.print(f"epoch {step.epoch + 1:2}  loss {step.loss:.3f}  members {session.size}")
session.finish()

if session.rank == 0:
    model.eval()
    written = text.codes[1000 : 1000 + CONTEXT].unsqueeze(0)
    with torch.no_grad():
        for _ in range(80):
            likely = model(written[:, -CONTEXT:])[0, -1].softmax(dim=0)
            written = torch.cat([written, torch.multinomial(likely, 1).view(1, 1)], dim=1)
    print("".join(text.alphabet[code] for code in written[0, CONTEXT:]))
