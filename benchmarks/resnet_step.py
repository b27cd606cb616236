"""A whole training step of a ResNet, ERM against ERM + PFDL.

    python benchmarks/resnet_step.py          ResNet-50, batch 128, 224², TF32 and bf16 on a GPU;
    ResNet-18 on a CPU

Both loops are the same but for one term of the loss. They take turns in short runs, and the ratio
is the median over pairs of neighbouring runs, so that a drift of the machine's clock meets both.
"""

import statistics
import time

import torch
import torchvision
from torch.nn import functional as F

import pfdl
from machine import describe_machine


def training_step(name, images, labels, autocast, decorrelate):
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(num_classes=10).to(
        images.device, memory_format=torch.channels_last
    )
    tap = pfdl.attach(model)
    penalty = pfdl.PartialDecorrelation(tap.num_features).to(images.device) if decorrelate else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(model(images), labels)
            if penalty is not None:
                loss = loss + penalty(tap.features)
        loss.backward()
        optimizer.step()

    return step


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def compare(name, batch, size, device, autocast, steps, pairs):
    images = torch.randn(batch, 3, size, size, device=device).contiguous(
        memory_format=torch.channels_last
    )
    labels = torch.randint(10, (batch,), device=device)
    contestants = [
        training_step(name, images, labels, autocast, decorrelate) for decorrelate in (False, True)
    ]
    for step in contestants:
        for _ in range(8 if device == "cuda" else 1):
            step()
    took = ([], [])
    for _ in range(pairs):
        for step, times in zip(contestants, took, strict=True):
            wait(device)
            begin = time.perf_counter()
            for _ in range(steps):
                step()
            wait(device)
            times.append((time.perf_counter() - begin) / steps * 1e3)
    ratio = statistics.median(with_it / without for without, with_it in zip(*took, strict=True))
    erm, both = map(statistics.median, took)
    kind = "bf16 autocast" if autocast else ("TF32" if device == "cuda" else "float32")
    print(
        f"| {name}, batch {batch}, {size}² | {kind} | {erm:.2f} | {both:.2f} | {ratio:.3f} |",
        flush=True,
    )


def main():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    print(describe_machine(), "\n")
    print("| training step | precision | ERM, ms | ERM + PFDL, ms | ratio |\n|---|---|---|---|---|")
    if torch.cuda.is_available():
        for autocast in (False, True):
            compare("resnet50", 128, 224, "cuda", autocast, steps=10, pairs=9)
    else:
        compare("resnet18", 16, 224, "cpu", False, steps=1, pairs=5)


if __name__ == "__main__":
    main()
