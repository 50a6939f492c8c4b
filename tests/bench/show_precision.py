"""Prints what each precision setting and each reduced-precision switch costs: the error of one product against float64.

    python tests/bench/show_precision.py

Errors are the mean over the elements of |product - exact| / sum_k |a_ik b_kj|: rounding both operands to p bits costs about 2^-p.
"""

import argparse

import numpy as np

import ampnative as torch
from ampnative import backends

MATMUL = backends.cuda.matmul
REDUCED = "allow_{}_reduced_precision_reduction"


def error(a: torch.Tensor, b: torch.Tensor, **kwargs: str) -> float:
    exact_a, exact_b = a.double().cpu().numpy(), b.double().cpu().numpy()
    got = torch.matmul(a, b, **kwargs).double().cpu().numpy()
    return float(np.mean(np.abs(got - exact_a @ exact_b) / (np.abs(exact_a) @ np.abs(exact_b))))


def show(what: str, value: float | str) -> None:
    print(f"  {what:64s} {value:.2e}" if isinstance(value, float) else f"  {what:64s} {value}")


def fp32(a: torch.Tensor, b: torch.Tensor) -> None:
    for device, settings in (("cpu", backends.mkldnn.matmul), ("cuda", MATMUL)):
        print(f"fp32 product on {device}")
        for value in ("ieee", "tf32") + (("bf16",) if device == "cpu" else ()):
            settings.fp32_precision = value
            show(f"fp32_precision = {value!r}", error(a.to(device), b.to(device)))
        show("matmul(..., precision='ieee') under the last", error(a.to(device), b.to(device), precision="ieee"))
        for level in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(level)
            show(f"set_float32_matmul_precision({level!r})", error(a.to(device), b.to(device)))


def sixteen_bits(a: torch.Tensor, b: torch.Tensor, split_k: int) -> None:
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        print(f"{name} product on cuda, split_k={split_k}")
        x, y = a.to(dtype).cuda(), b.to(dtype).cuda()
        for value in (True, False, (False, False)):
            setattr(MATMUL, REDUCED.format(name), value)
            backends.cuda.preferred_blas_library("cublas")
            try:
                show(f"{REDUCED.format(name)} = {value}", error(x, y))
            except RuntimeError as refusal:
                show(f"{REDUCED.format(name)} = {value}", f"RuntimeError: {str(refusal)[:60]}...")
                backends.cuda.preferred_blas_library("cublaslt")
                show("   with preferred_blas_library('cublaslt')", error(x, y))
    print("fp16 product on cuda")
    MATMUL.allow_fp16_accumulation = True
    show("allow_fp16_accumulation = True", error(a.half().cuda(), b.half().cuda()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors of the precision settings against float64.")
    parser.add_argument("--k", type=int, default=4096, help="inner dimension")
    parser.add_argument("--split-k", type=int, default=8)
    options = parser.parse_args()
    torch.manual_seed(0)
    # The second half nearly cancels the first, so that what partial sums lose is seen.
    a, b = torch.randn(64, options.k // 2), torch.randn(options.k // 2, 64)
    a, b = torch.cat([a, a + 0.1 * torch.randn(64, options.k // 2)], 1), torch.cat([b, -b])
    with torch.cuda.emulate(split_k=options.split_k):
        fp32(a, b)
        sixteen_bits(a, b, options.split_k)


if __name__ == "__main__":
    main()
