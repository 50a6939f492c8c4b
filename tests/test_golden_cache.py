"""nested_and_cache.json: small programs over autocast regions: what they return, in which dtype products are formed,
and how often tensors are cast.

Our rules: the cache is keyed by tensor and dtype, and a weight edited in place is cast again.
"""

import threading
from collections import Counter

import pytest
from golden_tools import IS_PYTORCH, dtype_name, records, torch

PROGRAMS = {}
EDITS_A_WEIGHT = set()


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


def weight(dtype="float32"):
    return torch.full((3, 3), 0.5, dtype=getattr(torch, dtype), requires_grad=True)


def inputs(dtype="float32"):
    return torch.full((2, 3), 0.25, dtype=getattr(torch, dtype))


def region(dtype="bfloat16", **kwargs):
    return torch.autocast("cpu", dtype=getattr(torch, dtype), **kwargs)


class Products:
    """Forms products and remembers their dtypes and the dtype of the region each was formed in."""

    def __init__(self):
        self.dtypes, self.regions = [], []

    def mm(self, a, b):
        return self._keep(torch.mm(a, b))

    def linear(self, x, w, b):
        return self._keep(torch.nn.functional.linear(x, w, b))

    def _keep(self, out):
        self.dtypes.append(dtype_name(out.dtype))
        self.regions.append(dtype_name(torch.get_autocast_dtype("cpu")))
        return out


@program
def one_weight_three_times(p, **kwargs):
    w, x = weight(), inputs()
    with region(**kwargs):
        for _ in range(3):
            p.mm(x, w)


@program
def cache_disabled(p):
    one_weight_three_times(p, cache_enabled=False)


@program
def cache_switched_off_inside(p):
    w, x = weight(), inputs()
    with region():
        p.mm(x, w)
        torch.set_autocast_cache_enabled(False)
        p.mm(x, w)
        p.mm(x, w)
        torch.set_autocast_cache_enabled(True)
        p.mm(x, w)


def _inner_region(p, **kwargs):
    w, x = weight(), inputs()
    with region():
        p.mm(x, w)
        with region(**kwargs):
            p.mm(x, w)
        p.mm(x, w)


@program
def inner_region_without_cache(p):
    _inner_region(p, cache_enabled=False)


@program
def disabled_inner_region_keeps_the_cache(p):
    _inner_region(p, enabled=False)


@program
def two_dtypes_one_weight(p):
    _inner_region(p, dtype="float16")


@program
def two_dtypes_other_order(p):
    w, x = weight(), inputs()
    with region("float16"):
        with region("bfloat16"):
            p.mm(x, w)
        p.mm(x, w)


@program
def nested_regions_share_the_cache(p):
    w, x = weight(), inputs()
    with region():
        for _ in range(2):
            with region():
                p.mm(x, w)
        p.mm(x, w)


@program
def two_outer_regions(p):
    w, x = weight(), inputs()
    for _ in range(2):
        with region():
            p.mm(x, w)
            p.mm(x, w)


@program
def cleared_by_hand(p):
    w, x = weight(), inputs()
    with region():
        p.mm(x, w)
        torch.clear_autocast_cache()
        p.mm(x, w)


@program
def flag_without_region(p):
    w, x = weight(), inputs()
    torch.set_autocast_enabled("cpu", True)
    p.mm(x, w)
    p.mm(x, w)
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_enabled("cpu", True)
    p.mm(x, w)
    torch.set_autocast_enabled("cpu", False)
    torch.clear_autocast_cache()


def _twice(p, w, x, dtype="bfloat16"):
    with region(dtype):
        p.mm(x, w)
        p.mm(x, w)


@program
def no_requires_grad(p):
    _twice(p, weight().detach(), inputs())


@program
def not_a_leaf(p):
    _twice(p, weight() * 1.0, inputs())


@program
def view_that_is_a_leaf(p):
    _twice(p, torch.full((6, 3), 0.5)[:3].requires_grad_(), inputs())


@program
def sixteen_bit_weight_of_the_other_kind(p):
    _twice(p, weight("float16"), inputs())


@program
def view_of_a_weight(p):
    w, x = weight(), inputs()
    with region():
        p.mm(x, w.t())
        p.mm(x, w.t())
        p.mm(x, w)


@program
def linear_with_bias(p):
    w, b, x = weight(), torch.zeros(3, requires_grad=True), inputs()
    with region():
        p.linear(x, w, b)
        p.linear(x, w, b)


@program
def fp64_weight(p):
    w, x = weight("float64"), inputs("float64")
    with region():
        p.mm(x, w)


@program
def weight_changed_in_place(p):
    w, x = weight(), inputs()
    with region():
        first = p.mm(x, w)
        with torch.no_grad():
            w.mul_(2)
        second = p.mm(x, w)
    return [first[0, 0].item(), second[0, 0].item()]


EDITS_A_WEIGHT.add("weight_changed_in_place")


@program
def no_grad_then_grad(p):
    w, x = weight(), inputs()
    with region():
        with torch.no_grad():
            p.mm(x, w)
        out = p.mm(x, w)
    out.sum().backward()
    return [out.requires_grad, None if w.grad is None else dtype_name(w.grad.dtype)]


@program
def grad_then_no_grad(p):
    w, x = weight(), inputs()
    with region():
        out = p.mm(x, w)
        with torch.no_grad():
            other = p.mm(x, w)
    out.sum().backward()
    return [out.requires_grad, other.requires_grad, dtype_name(w.grad.dtype)]


@program
def inference_mode(p):
    w, x = weight(), inputs()
    with region():
        with torch.inference_mode():
            p.mm(x, w)
            p.mm(x, w)
        out = p.mm(x, w)
    return [out.requires_grad]


@program
def under_no_grad(p):
    w, x = weight(), inputs()
    with region(), torch.no_grad():
        for _ in range(3):
            p.mm(x, w)


@program
def gradient_dtypes(p):
    w, x = weight(), inputs().requires_grad_()
    with region():
        out = p.mm(x, w) + p.mm(x, w)
    out.sum().backward()
    return [dtype_name(out.dtype), dtype_name(w.grad.dtype), dtype_name(x.grad.dtype)]


@program
def backward_inside_the_region(p):
    w, x = weight(), inputs()
    with region():
        p.mm(x, w).sum().backward()
        p.mm(x, w).sum().backward()
    return dtype_name(w.grad.dtype)


@program
def other_thread_leaves_its_region(p):
    w, x = weight(), inputs()

    def body():
        with region():
            pass

    with region():
        p.mm(x, w)
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        p.mm(x, w)


@program
def exception_clears(p):
    w, x = weight(), inputs()
    for _ in range(2):
        with pytest.raises(KeyError), region():
            p.mm(x, w)
            raise KeyError


@program
def out_of_region_then_in(p):
    w, x = weight(), inputs()
    p.mm(x, w)
    with region():
        p.mm(x, w)
    p.mm(x, w)


def run(name, products):
    """What the program returned or {"error": type}, its casts {"from>to shape": count} and the dtypes of its products."""
    box = {}

    def body():
        try:
            box["value"] = PROGRAMS[name](products)
        except RuntimeError as exc:
            box["error"] = type(exc).__name__

    if IS_PYTORCH:
        box["casts"], box["products"] = _watch_pytorch(body)
    else:
        with torch.debug.op_report() as report:
            body()
        box["casts"], box["products"] = report.casts, [dtype_name(d) for d in report.products]
        assert report.cast_count == sum(report.casts.values())
    torch.clear_autocast_cache()
    return box


def _watch_pytorch(body):
    from torch.utils._python_dispatch import TorchDispatchMode

    casts, products = Counter(), []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            name = func._schema.name
            if name in ("aten::_to_copy", "aten::to") and args[0].dtype != out.dtype:
                casts[f"{dtype_name(args[0].dtype)}>{dtype_name(out.dtype)} {list(args[0].shape)}"] += 1
            elif name in ("aten::mm", "aten::addmm"):
                products.append(dtype_name(out.dtype))
            return out

    with Watch():
        body()
    return dict(casts), products


def _our_casts(name, products):
    """Each product casts its input; the weight is cast once for each dtype, or before and after the edit."""
    casts = Counter(f"float32>{dtype} [2, 3]" for dtype in products.dtypes)
    for dtype in set(products.dtypes):
        casts[f"float32>{dtype} [3, 3]"] = 2 if name in EDITS_A_WEIGHT else 1
    return casts


@records("nested_and_cache")
def test_program(record):
    products = Products()
    got = run(record["name"], products)
    if record.get("error") == "RuntimeError":
        record.ours.append("the cache is keyed by tensor and dtype")
    if record["name"] in EDITS_A_WEIGHT:
        record.ours.append("a weight edited in place is cast again")
    if record.ours and not IS_PYTORCH:
        assert "error" not in got, got
        assert got["products"] == products.dtypes == products.regions  # every product in its region's dtype
        if record["name"] in EDITS_A_WEIGHT:
            assert got["value"] == [record["value"][0], 2 * record["value"][1]]
        assert got["casts"] == _our_casts(record["name"], products)
    else:
        assert got.get("error") == record.get("error")
        assert got.get("value") == record.get("value")
        assert got["products"] == record["products"]
        assert got["casts"] == record["casts"]
