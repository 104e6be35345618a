"""Networks of ``unseen/`` that are written out here, after their papers; the others are of timm and transformers."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

IMAGE = (1, 3, 224, 224)


class ShuffleUnit(nn.Module):
    """ShuffleNet V2 (Ma et al. 2018), figure 3 (c) and (d): half of the channels pass, then channels are shuffled."""

    def __init__(self, channels: int, out: int, stride: int):
        super().__init__()
        self.stride = stride
        half = out // 2
        entry = channels if stride == 2 else half
        self.main = nn.Sequential(
            *_pointwise(entry, half), *_depthwise(half, stride), *_pointwise(half, half)
        )
        self.side = (
            nn.Sequential(*_depthwise(channels, 2), *_pointwise(channels, half)) if stride == 2 else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.side is None:
            kept, x = x.chunk(2, 1)
        else:
            kept = self.side(x)
        both = torch.cat([kept, self.main(x)], 1)
        n, c, h, w = both.shape
        return both.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def _pointwise(channels: int, out: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, out, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]


def _depthwise(channels: int, stride: int) -> list[nn.Module]:
    return [
        nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False),
        nn.BatchNorm2d(channels),
    ]


def shufflenet_v2() -> tuple[nn.Module, torch.Tensor]:
    """ShuffleNet V2, 1.0x."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 24, 3, 2, 1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 24
    for out, repeats in ((116, 4), (232, 8), (464, 4)):
        for number in range(repeats):
            layers.append(ShuffleUnit(channels, out, 2 if number == 0 else 1))
            channels = out
    layers += [*_pointwise(464, 1024), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000)]
    return nn.Sequential(*layers), torch.randn(IMAGE)


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015) with padding and batch norm, 32 channels at the top."""

    def __init__(self, top: int = 32, depth: int = 4, classes: int = 2):
        super().__init__()
        widths = [top << level for level in range(depth + 1)]
        ins = [3, *widths]
        self.down = nn.ModuleList(self._double(i, o) for i, o in zip(ins, widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(w, w // 2, 2, 2) for w in widths[:0:-1])
        self.merge = nn.ModuleList(self._double(w, w // 2) for w in widths[:0:-1])
        self.head = nn.Conv2d(top, classes, 1)

    @staticmethod
    def _double(channels: int, out: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(channels, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, kept[-2::-1], strict=True):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.head(x)


def unet() -> tuple[nn.Module, torch.Tensor]:
    return UNet(), torch.randn(1, 3, 256, 256)


class Activated(nn.Sequential):
    """A convolution of YOLOv5, with its norm and SiLU."""

    def __init__(self, channels: int, out: int, size: int = 1, stride: int = 1, padding: int | None = None):
        padding = size // 2 if padding is None else padding
        super().__init__(
            nn.Conv2d(channels, out, size, stride, padding, bias=False), nn.BatchNorm2d(out), nn.SiLU()
        )


class Bottleneck(nn.Module):
    """1x1 and 3x3, around which the input passes unless the layer is not ``residual``."""

    def __init__(self, channels: int, residual: bool):
        super().__init__()
        self.main = nn.Sequential(Activated(channels, channels), Activated(channels, channels, 3))
        self.residual = residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.main(x) if self.residual else self.main(x)


class CrossStage(nn.Module):
    """C3: half of the channels pass through bottlenecks, half around them."""

    def __init__(self, channels: int, out: int, repeats: int, residual: bool = True):
        super().__init__()
        half = out // 2
        self.main = nn.Sequential(
            Activated(channels, half), *(Bottleneck(half, residual) for _ in range(repeats))
        )
        self.side, self.merge = Activated(channels, half), Activated(2 * half, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.merge(torch.cat([self.main(x), self.side(x)], 1))


class PyramidPool(nn.Module):
    """SPPF: three pools in a row, beside each other."""

    def __init__(self, channels: int):
        super().__init__()
        self.reduce, self.merge = Activated(channels, channels // 2), Activated(2 * channels, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [self.reduce(x)]
        for _ in range(3):
            found.append(self.pool(found[-1]))
        return self.merge(torch.cat(found, 1))


class Boxes(nn.Module):
    """What a scale predicts, as boxes in pixels, confidence and classes."""

    def __init__(self, channels: int, stride: float, classes: int):
        super().__init__()
        self.stride, self.fields = stride, classes + 5
        self.predict = nn.Conv2d(channels, 3 * self.fields, 1)
        self.register_buffer("anchors", (torch.rand(1, 3, 1, 1, 2) + 0.5) * 4 * stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, _, h, w = x.shape
        found = self.predict(x).view(n, 3, self.fields, h, w).permute(0, 1, 3, 4, 2).sigmoid()
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        corner = torch.stack([columns, rows], -1).view(1, 1, h, w, 2).float() - 0.5
        centre, size = (found[..., :2] * 2 + corner) * self.stride, (found[..., 2:4] * 2) ** 2 * self.anchors
        return torch.cat([centre, size, found[..., 4:]], -1).view(n, -1, self.fields)


class Yolo(nn.Module):
    """YOLOv5 (Jocher 2020), nano, release 6: backbone, two ways through the scales, decoded boxes."""

    def __init__(self, top: int = 16, classes: int = 80):
        super().__init__()
        a, b, c, d, e = (top << level for level in range(5))
        self.eighth = nn.Sequential(
            Activated(3, a, 6, 2, 2),
            Activated(a, b, 3, 2),
            CrossStage(b, b, 1),
            Activated(b, c, 3, 2),
            CrossStage(c, c, 2),
        )
        self.sixteenth = nn.Sequential(Activated(c, d, 3, 2), CrossStage(d, d, 3))
        self.last = nn.Sequential(Activated(d, e, 3, 2), CrossStage(e, e, 1), PyramidPool(e), Activated(e, d))
        self.up = nn.Upsample(scale_factor=2.0, mode="nearest")
        self.widen = nn.Sequential(CrossStage(2 * d, d, 1, False), Activated(d, c))
        self.finest = CrossStage(2 * c, c, 1, False)
        self.narrow, self.middle = Activated(c, c, 3, 2), CrossStage(2 * c, d, 1, False)
        self.narrower, self.coarsest = Activated(d, d, 3, 2), CrossStage(2 * d, e, 1, False)
        self.boxes = nn.ModuleList(Boxes(*scale, classes) for scale in ((c, 8.0), (d, 16.0), (e, 32.0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        eighth = self.eighth(x)
        sixteenth = self.sixteenth(eighth)
        last = self.last(sixteenth)
        widened = self.widen(torch.cat([self.up(last), sixteenth], 1))
        finest = self.finest(torch.cat([self.up(widened), eighth], 1))
        middle = self.middle(torch.cat([self.narrow(finest), widened], 1))
        coarsest = self.coarsest(torch.cat([self.narrower(middle), last], 1))
        scales = (finest, middle, coarsest)
        return torch.cat([boxes(scale) for boxes, scale in zip(self.boxes, scales, strict=True)], 1)


def yolov5n() -> tuple[nn.Module, torch.Tensor]:
    return Yolo(), torch.randn(1, 3, 320, 320)


def dcgan() -> tuple[nn.Module, torch.Tensor]:
    """DCGAN's generator (Radford et al. 2015) of images of 64x64, 512 channels at first."""
    layers: list[nn.Module] = []
    for channels, out in ((100, 512), (512, 256), (256, 128), (128, 64)):
        stride, padding = (1, 0) if channels == 100 else (2, 1)
        layers += [
            nn.ConvTranspose2d(channels, out, 4, stride, padding, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()), torch.randn(1, 100, 1, 1)


class Tagger(nn.Module):
    """Words to labels: two layers of LSTM in both directions (Huang et al. 2015, without the random field)."""

    def __init__(self, words: int = 8192, width: int = 128, hidden: int = 256, labels: int = 40):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.layers = nn.LSTM(width, hidden, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, labels)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.table(ids))[0])


def bilstm_tagger() -> tuple[nn.Module, torch.Tensor]:
    """A sentence of 32 words."""
    return Tagger(), torch.randint(0, 8192, (1, 32))


class TextLines(nn.Module):
    """CRNN (Shi et al. 2015): an image of a line of text becomes classes along its width.

    (n, 1, 32, width) -> (n, width / 4 + 1, classes); VGG's convolutions, two layers of LSTM in both directions.
    """

    def __init__(self, classes: int = 97, hidden: int = 256):
        super().__init__()
        wide = nn.MaxPool2d((2, 2), (2, 1), (0, 1))
        self.features = nn.Sequential(
            *_recognised(1, 64), nn.MaxPool2d(2), *_recognised(64, 128), nn.MaxPool2d(2),
            *_recognised(128, 256, norm=True), *_recognised(256, 256), wide,
            *_recognised(256, 512, norm=True), *_recognised(512, 512), wide,
            nn.Conv2d(512, 512, 2), nn.BatchNorm2d(512), nn.ReLU(),
        )  # fmt: skip
        self.layers = nn.LSTM(512, hidden, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = self.features(x).squeeze(2).transpose(1, 2)
        return self.head(self.layers(columns)[0])


def _recognised(channels: int, out: int, norm: bool = False) -> list[nn.Module]:
    """A convolution of CRNN, with ReLU, and a batch norm behind some."""
    return [nn.Conv2d(channels, out, 3, 1, 1), *([nn.BatchNorm2d(out)] if norm else []), nn.ReLU()]


def crnn() -> tuple[nn.Module, torch.Tensor]:
    return TextLines(), torch.randn(1, 1, 32, 128)
