"""Makes the files that ``purestate demo`` carries, with PyTorch.

    python -m tests.make_demo digits.csv.gz

The argument is ``sklearn/datasets/data/digits.csv.gz`` from a wheel of scikit-learn, a copy of the
test part of the UCI optical digits. Two files are written to ``bridge/demo/data``:

* ``digits.npz``: the images as uint8 from 0 to 16, and the labels, in a train and a test part;
* ``digits_checkpoint.pt``: what PyTorch has after two epochs of Adam, by ``torch.save``. That is
  early, so that training which continues from the file has something left to learn. The number of
  test digits that PyTorch gets right is in the file, for the demo to compare its own count with.

:class:`Digits` here and in ``bridge/demo/_network.py`` is the same text over different imports.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn


DATA = Path(__file__).parent.parent / "bridge" / "demo" / "data"
TEST_DIGITS = 360
BATCH_SIZE = 32
EPOCHS = 2
SEED = 0


class Digits(nn.Module):
    """A small convolutional network for 8x8 grey images of digits."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.flatten = nn.Flatten()
        self.dropout = nn.Dropout(0.25)
        self.fc = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x):
        """The logits of the ten digits."""
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        x = self.pool(self.relu(self.bn2(self.conv2(x))))
        return self.fc(self.dropout(self.flatten(x)))


def adam(model: nn.Module) -> torch.optim.Adam:
    """The optimizer that the checkpoint holds the state of."""
    return torch.optim.Adam(model.parameters(), lr=5e-4)


def as_input(images: np.ndarray) -> torch.Tensor:
    """Images as the network takes them: ``(N, 1, 8, 8)`` from 0 to 1."""
    return torch.from_numpy(images[:, None].astype(np.float32) / 16)


def logits(model: nn.Module, images: np.ndarray) -> torch.Tensor:
    """The network's output in evaluation mode."""
    model.eval()
    with torch.no_grad():
        return model(as_input(images))


def correct(model: nn.Module, images: np.ndarray, labels: np.ndarray) -> int:
    """How many images the network gets right."""
    return int((logits(model, images).argmax(1).numpy() == labels).sum())


def split_digits(csv: Path) -> dict[str, np.ndarray]:
    """The images and labels of the published table, shuffled and cut in two."""
    table = np.loadtxt(csv, delimiter=",").astype(np.uint8)
    table = table[np.random.default_rng(SEED).permutation(len(table))]
    images, labels = table[:, :64].reshape(-1, 8, 8), table[:, 64]
    return {
        "train_images": images[TEST_DIGITS:],
        "train_labels": labels[TEST_DIGITS:],
        "test_images": images[:TEST_DIGITS],
        "test_labels": labels[:TEST_DIGITS],
    }


def train(digits: dict[str, np.ndarray]) -> tuple[Digits, torch.optim.Adam]:
    """The network and its optimizer after a few epochs."""
    torch.manual_seed(SEED)
    model = Digits()
    optimizer = adam(model)
    images = as_input(digits["train_images"])
    labels = torch.from_numpy(digits["train_labels"].astype(np.int64))
    for _ in range(EPOCHS):
        model.train()
        for batch in torch.randperm(len(images))[: len(images) // BATCH_SIZE * BATCH_SIZE].split(
            BATCH_SIZE
        ):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    return model, optimizer


def main(csv: Path) -> None:
    """Write both files."""
    digits = split_digits(csv)
    model, optimizer = train(digits)
    right = correct(model, digits["test_images"], digits["test_labels"])
    best = logits(model, digits["test_images"]).topk(2).values
    margin = float((best[:, 0] - best[:, 1]).min())
    if margin < 1e-4:
        raise RuntimeError(f"a digit is undecided (margin {margin}): rounding could change its class")
    DATA.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(DATA / "digits.npz", allow_pickle=False, **digits)
    checkpoint = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": EPOCHS,
        "test_correct": right,
    }
    torch.save(checkpoint, DATA / "digits_checkpoint.pt")
    print(f"{right} of {len(best)} test digits right; smallest margin {margin:.1e}")
    for file in sorted(DATA.iterdir()):
        print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
