"""The networks that are timed, each as one class text for both sides.

A builder takes ``torch.nn`` or ``purestate.nn`` (and the matching ``functional``), so that both
sides run the same program with the same names, and torch's ``state_dict`` loads as it is.
"""

from typing import Any


def mlp(nn: Any) -> Any:
    """784-1024-1024-10 with ReLU."""
    return nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


def resnet18(nn: Any) -> Any:
    """ResNet-18 (He et al. 2015) with 10 classes."""

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU()
            self.downsample = None
            if stride != 1 or inputs != outputs:
                self.downsample = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x: Any) -> Any:
            identity = x if self.downsample is None else self.downsample(x)
            x = self.relu(self.bn1(self.conv1(x)))
            return self.relu(self.bn2(self.conv2(x)) + identity)

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            self.relu = nn.ReLU()
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            sizes = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
            self.layers = nn.Sequential(
                *(nn.Sequential(Block(i, o, s), Block(o, o, 1)) for i, o, s in sizes)
            )
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.flatten = nn.Flatten()
            self.fc = nn.Linear(512, 10)

        def forward(self, x: Any) -> Any:
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            return self.fc(self.flatten(self.avgpool(self.layers(x))))

    return ResNet()


def mobilenet_v2(nn: Any) -> Any:
    """MobileNetV2 (Sandler et al. 2018), width 1, with 10 classes."""

    def conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU6(),
        )

    class Inverted(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int, expand: int):
            super().__init__()
            hidden = inputs * expand
            self.residual = stride == 1 and inputs == outputs
            first = [] if expand == 1 else [conv(inputs, hidden, 1)]
            self.conv = nn.Sequential(
                *first,
                conv(hidden, hidden, 3, stride, hidden),
                nn.Conv2d(hidden, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )

        def forward(self, x: Any) -> Any:
            return x + self.conv(x) if self.residual else self.conv(x)

    table = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)] + [
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    layers, inputs = [conv(3, 32, 3, 2)], 32
    for expand, outputs, repeats, stride in table:
        for index in range(repeats):
            layers.append(Inverted(inputs, outputs, stride if index == 0 else 1, expand))
            inputs = outputs
    layers += [conv(inputs, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 10)]
    return nn.Sequential(*layers)


def gpt(nn: Any) -> Any:
    """A GPT of 6 layers (width 384, 6 heads, 256 tokens of 1,024), its blocks run in turn."""
    width, heads, length, vocabulary = 384, 6, 256, 1024

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1 = nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width)
            self.proj = nn.Linear(width, width)
            self.ln_2 = nn.LayerNorm(width)
            self.fc = nn.Linear(width, 4 * width)
            self.gelu = nn.GELU()
            self.out = nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            sizes = (*x.shape[:2], 3, heads, width // heads)
            qkv = self.qkv(self.ln_1(x)).reshape(sizes)
            q, k, v = (qkv[:, :, part].swapaxes(1, 2) for part in range(3))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.swapaxes(1, 2).reshape(x.shape))
            return x + self.out(self.gelu(self.fc(self.ln_2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(vocabulary, width)
            self.wpe = nn.Parameter(nn.Embedding(length, width).weight)
            self.blocks = nn.Sequential(*(Block() for _ in range(6)))
            self.ln = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.ln(self.blocks(self.wte(tokens) + self.wpe)))

    return GPT()


def lstm(nn: Any) -> Any:
    """Two LSTM layers of 256 and a head of 10 classes over the last step."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(256, 256, 2)
            self.head = nn.Linear(256, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][-1])

    return Network()


def deep_transformer(nn: Any) -> Any:
    """48 encoder layers of width 64 with 4 heads, and a head of 10 classes over the mean."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(
                64, 4, 256, 0.0, "gelu", batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, 48, enable_nested_tensor=False)
            self.head = nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.encoder(x).mean(1))

    return Network()
