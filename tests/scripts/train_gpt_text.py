"""A character-level GPT on the language reference that ships with Python. An ordinary PyTorch script.

For each --precision: fp32 and bf16 (autocast) train on the CPU, fp16 (autocast and gradient scaling) on device cuda. --sample N prints
N characters that the trained model writes.
"""

import argparse
import time
from pydoc_data.topics import topics

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--precision", nargs="+", choices=["fp32", "bf16", "fp16"], default=["fp32", "bf16", "fp16"])
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--context", type=int, default=64)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--sample", type=int, default=0)
parser.add_argument("--init-scale", type=float, default=2.0**16, help="of the loss, in fp16")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

TEXT = "\n".join(topics[name] for name in ("assignment", "calls", "class", "for", "function", "if", "import", "try", "while", "with"))
LETTERS = sorted(set(TEXT))
print(f"{len(TEXT)} letters of {len(LETTERS)} kinds")  # releases of Python differ


class Block(nn.Module):
    """Causal self-attention and a feed-forward part, each behind a layer norm and beside a residual."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        drop = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.norm2(x))


class GPT(nn.Module):
    """Scores (batch, length, letters) of the letter behind each of (batch, length) letters; input and output share their table."""

    def __init__(self, letters, context, width, heads, layers, dropout):
        super().__init__()
        self.context = context
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters, bias=False)
        self.apply(self.start)
        self.head.weight = self.letter.weight

    @staticmethod
    def start(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.05)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, letters):
        x = self.letter(letters) + self.place(torch.arange(letters.shape[1], device=letters.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    @torch.no_grad()
    def write(self, letters, count):
        for _ in range(count):
            scores = self(letters[:, -self.context :])[:, -1].float()
            letters = torch.cat([letters, torch.multinomial(F.softmax(scores, -1), 1)], 1)
        return letters


def train(precision):
    torch.manual_seed(options.seed)
    device = "cuda" if precision == "fp16" else "cpu"
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    number = {letter: i for i, letter in enumerate(LETTERS)}
    data = torch.tensor([number[letter] for letter in TEXT])
    split = int(0.9 * len(data))
    window = torch.arange(options.context)

    def batch(start, end, count):
        begin = start + torch.randint(end - start - options.context, (count, 1))
        return data[begin + window].to(device), data[begin + window + 1].to(device)

    model = GPT(len(LETTERS), options.context, options.width, options.heads, options.layers, options.dropout).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.01)
    scaler = torch.amp.GradScaler("cuda", init_scale=options.init_scale, enabled=precision == "fp16")

    def loss_of(x, y):
        with torch.autocast(device, dtype=dtype, enabled=precision != "fp32"):
            return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    skipped = 0
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 20)
        loss = loss_of(*batch(0, split, options.batch))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        before = scaler.get_scale()
        scaler.update()
        skipped += scaler.get_scale() < before

    model.eval()
    torch.manual_seed(1)
    with torch.no_grad():
        loss = loss_of(*batch(split, len(data), 64))
    if options.sample:
        with torch.autocast(device, dtype=dtype, enabled=precision != "fp32"):
            written = model.write(torch.zeros((1, 1), dtype=torch.int64, device=device), options.sample)
        print("".join(LETTERS[i] for i in written[0, 1:].tolist()))
    return loss.item(), skipped


for precision in options.precision:
    start = time.perf_counter()
    loss, skipped = train(precision)
    seconds = time.perf_counter() - start
    print(f"{precision} loss {loss:.4f} skipped {skipped} seconds {seconds:.1f}")
