"""A small net with batch normalisation on scikit-learn's breast cancer table (30 columns, two classes). An ordinary PyTorch script.

For each --precision: fp32 and bf16 (autocast) train on the CPU, fp16 (autocast and gradient scaling) on device cuda.
"""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer

parser = argparse.ArgumentParser()
parser.add_argument("--precision", nargs="+", choices=["fp32", "bf16", "fp16"], default=["fp32", "bf16", "fp16"])
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--init-scale", type=float, default=2.0**16, help="of the loss, in fp16")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()


def make_model(columns):
    return nn.Sequential(
        nn.Linear(columns, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(64, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 1),
    )  # fmt: skip


def train(precision):
    torch.manual_seed(options.seed)
    device = "cuda" if precision == "fp16" else "cpu"
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    columns, classes = load_breast_cancer(return_X_y=True)
    x, y = torch.tensor(columns, dtype=torch.float32), torch.tensor(classes, dtype=torch.float32)
    order = torch.randperm(len(x))
    x, y = x[order], y[order]
    n = 400
    x = (x - x[:n].mean(0)) / x[:n].std(0)
    x, y = x.to(device), y.to(device)

    model = make_model(x.shape[1]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=options.init_scale, enabled=precision == "fp16")
    skipped = 0
    for _ in range(options.epochs):
        model.train()
        for rows in torch.randperm(n).to(device).split(50):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=dtype, enabled=precision != "fp32"):
                loss = F.binary_cross_entropy_with_logits(model(x[rows]).squeeze(1), y[rows])
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            before = scaler.get_scale()
            scaler.update()
            skipped += scaler.get_scale() < before

    model.eval()
    with torch.no_grad(), torch.autocast(device, dtype=dtype, enabled=precision != "fp32"):
        scores = model(x[n:]).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(scores, y[n:])
    accuracy = ((scores > 0) == (y[n:] > 0.5)).float().mean()
    return accuracy.item(), loss.item(), skipped


for precision in options.precision:
    start = time.perf_counter()
    accuracy, loss, skipped = train(precision)
    seconds = time.perf_counter() - start
    print(f"{precision} accuracy {accuracy:.4f} loss {loss:.4f} skipped {skipped} seconds {seconds:.1f}")
