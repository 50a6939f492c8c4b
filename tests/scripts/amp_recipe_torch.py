"""Mixed-precision training, step by step. An ordinary PyTorch script."""

import argparse
import gc
import json
import os
import tempfile
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--size", type=int, default=64)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--batches", type=int, default=4)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--layers", type=int, default=3)
options = parser.parse_args()

device = options.device
half = torch.float16 if device == "cuda" else torch.bfloat16
report = {"device": device, "half": str(half).split(".")[-1]}
start_time = None


def start_timer():
    global start_time
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    start_time = time.time()


def end_timer_and_print(message):
    if device == "cuda":
        torch.cuda.synchronize()
    print(f"{message}: {time.time() - start_time:.3f} s")
    if device == "cuda":
        print(f"  peak memory of tensors: {torch.cuda.max_memory_allocated()} bytes")


def make_model(in_size, out_size, num_layers):
    layers = []
    for _ in range(num_layers - 1):
        layers.append(nn.Linear(in_size, in_size))
        layers.append(nn.ReLU())
    layers.append(nn.Linear(in_size, out_size))
    torch.manual_seed(0)
    model = nn.Sequential(*layers)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return model.to(device)


torch.manual_seed(1)
inputs = torch.randn(options.batches * options.batch_size, options.size)
goals = torch.randn(options.batches * options.batch_size, options.size)
loader = DataLoader(TensorDataset(inputs, goals), batch_size=options.batch_size, shuffle=False)
loss_fn = torch.nn.MSELoss().to(device)


def batches():
    for data, target in loader:
        yield data.to(device), target.to(device)


# 1. Default precision
net = make_model(options.size, options.size, options.layers)
opt = torch.optim.SGD(net.parameters(), lr=0.001)
start_timer()
for _ in range(options.epochs):
    for data, target in batches():
        output = net(data)
        loss = loss_fn(output, target)
        loss.backward()
        opt.step()
        opt.zero_grad()
end_timer_and_print("default precision")
report["default_loss"] = loss.item()

# 2. autocast around forward and loss, backward outside
net = make_model(options.size, options.size, options.layers)
opt = torch.optim.SGD(net.parameters(), lr=0.001)
for data, target in batches():
    with torch.autocast(device_type=device, dtype=half):
        output = net(data)
        assert output.dtype is half, output.dtype
        loss = loss_fn(output, target)
        assert loss.dtype is torch.float32, loss.dtype
    loss.backward()
    opt.step()
    opt.zero_grad()
report["autocast_loss"] = loss.item()

# 3. GradScaler, in its old and its new spelling
if device == "cuda":
    assert torch.cuda.amp.GradScaler().get_scale() == 65536.0
net = make_model(options.size, options.size, options.layers)
opt = torch.optim.SGD(net.parameters(), lr=0.001)
scaler = torch.amp.GradScaler(device)
for data, target in batches():
    with torch.autocast(device_type=device, dtype=half):
        loss = loss_fn(net(data), target)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
assert scaler.get_scale() == 65536.0
report["scaler_loss"] = loss.item()

# 4. All together, switched by one flag; gradients clipped; one gradient is spoilt, so that its step is skipped
use_amp = True
net = make_model(options.size, options.size, options.layers)
opt = torch.optim.SGD(net.parameters(), lr=0.001)
scaler = torch.amp.GradScaler(device, init_scale=2.0**12, growth_interval=3, enabled=use_amp)
scales = []
start_timer()
for epoch in range(options.epochs):
    for data, target in batches():
        with torch.autocast(device_type=device, dtype=half, enabled=use_amp):
            loss = loss_fn(net(data), target)
        scaler.scale(loss).backward()
        if epoch == 0 and len(scales) == 1:
            net[0].weight.grad[0, 0] = float("inf")
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.1)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        scales.append(scaler.get_scale())
end_timer_and_print("mixed precision")
report["mixed_loss"] = loss.item()
report["scales"] = scales

# 5. Saving and resuming
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "checkpoint.pt")
    torch.save({"model": net.state_dict(), "optimizer": opt.state_dict(), "scaler": scaler.state_dict()}, path)
    checkpoint = torch.load(path, map_location=device)
twin = make_model(options.size, options.size, options.layers)
twin_opt = torch.optim.SGD(twin.parameters(), lr=0.001)
twin_scaler = torch.amp.GradScaler(device)
twin.load_state_dict(checkpoint["model"])
twin_opt.load_state_dict(checkpoint["optimizer"])
twin_scaler.load_state_dict(checkpoint["scaler"])
data, target = next(iter(batches()))
for model, optimizer, its_scaler in ((net, opt, scaler), (twin, twin_opt, twin_scaler)):
    with torch.autocast(device_type=device, dtype=half):
        loss = loss_fn(model(data), target)
    its_scaler.scale(loss).backward()
    its_scaler.step(optimizer)
    its_scaler.update()
    optimizer.zero_grad()
for one, other in zip(net.parameters(), twin.parameters()):
    assert torch.equal(one, other)
assert scaler.state_dict() == twin_scaler.state_dict()
report["resumed"] = True

# 6. Inference: autocast alone
net.eval()
with torch.no_grad(), torch.autocast(device_type=device, dtype=half):
    output = net(data)
assert output.dtype is half and not output.requires_grad
report["inference"] = output.float().abs().mean().item()

print("report " + json.dumps(report))
