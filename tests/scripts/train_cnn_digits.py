"""A convolutional net on scikit-learn's digits (8 x 8 pixels, ten classes). An ordinary PyTorch script.

For each --precision: fp32 and bf16 (autocast) train on the CPU, fp16 (autocast and gradient scaling) on device cuda.
"""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--precision", nargs="+", choices=["fp32", "bf16", "fp16"], default=["fp32", "bf16", "fp16"])
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--train-size", type=int, default=1400)
parser.add_argument("--init-scale", type=float, default=2.0**16, help="of the loss, in fp16")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10),
    )  # fmt: skip


def train(precision):
    torch.manual_seed(options.seed)
    device = "cuda" if precision == "fp16" else "cpu"
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    pixels, digits = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(digits, dtype=torch.int64)
    order = torch.randperm(len(images))
    images, labels = images[order].to(device), labels[order].to(device)
    n = options.train_size
    loader = DataLoader(TensorDataset(images[:n], labels[:n]), batch_size=64, shuffle=True)

    model = make_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda", init_scale=options.init_scale, enabled=precision == "fp16")
    skipped = 0
    for _ in range(options.epochs):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(device, dtype=dtype, enabled=precision != "fp32"):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            before = scaler.get_scale()
            scaler.update()
            skipped += scaler.get_scale() < before

    model.eval()
    with torch.no_grad(), torch.autocast(device, dtype=dtype, enabled=precision != "fp32"):
        scores = model(images[n:])
        loss = F.cross_entropy(scores, labels[n:])
    accuracy = (scores.argmax(1) == labels[n:]).float().mean()
    return accuracy.item(), loss.item(), skipped


for precision in options.precision:
    start = time.perf_counter()
    accuracy, loss, skipped = train(precision)
    seconds = time.perf_counter() - start
    print(f"{precision} accuracy {accuracy:.4f} loss {loss:.4f} skipped {skipped} seconds {seconds:.1f}")
