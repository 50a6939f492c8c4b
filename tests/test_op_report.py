"""debug.op_report: which ops run, in which dtypes, and what is counted."""

import threading

import numpy as np
import pytest

import ampnative as torch
from ampnative import debug


def names(report):
    return [row.name for row in report]


def test_rows_say_what_ran():
    x, w = torch.ones(2, 3), torch.ones(3, 3, requires_grad=True)
    with debug.op_report() as r, torch.autocast("cpu"):
        torch.mm(x, w).add_(1)
    mm, cast_w, cast_x, add = r  # arguments are cast from the last to the first, as PyTorch does
    assert (mm.name, mm.depth, mm.device, mm.backward, mm.error) == ("mm", 0, "cpu", False, None)
    assert mm.given == (torch.float32, torch.float32) and mm.dtypes == mm.results * 2 == (torch.bfloat16,) * 2
    assert mm.shapes == ((2, 3), (3, 3)) and mm.result_shapes == ((2, 3),)
    assert cast_x.is_cast and cast_w.is_cast and cast_x.depth == 1 and not mm.is_cast and mm.is_product
    assert add.name == "add_" and add.dtypes == (torch.bfloat16,)  # the number is no tensor
    assert r.casts == {"float32>bfloat16 [2, 3]": 1, "float32>bfloat16 [3, 3]": 1}
    assert (r.cast_count, r.cache_hits, r.products, len(r)) == (2, 0, [torch.bfloat16], 4)
    assert str(r).splitlines() == [
        "mm: bf16[2, 3], bf16[3, 3] -> bf16[2, 3]  given f32, f32",
        "  _to_copy: f32[3, 3] -> bf16[3, 3]",
        "  _to_copy: f32[2, 3] -> bf16[2, 3]",
        "add_: bf16[2, 3] -> bf16[2, 3]",
    ]
    assert repr(r) == "<op report: 4 ops, 2 casts, 0 cache hits>"


def test_nothing_ran():
    with debug.op_report() as r:
        pass
    assert str(r) == "no op ran" and list(r) == [] and r.casts == {} and r.products == []


def test_cache_hits():
    x, w = torch.ones(2, 3), torch.ones(3, 3, requires_grad=True)
    with debug.op_report() as r, torch.autocast("cpu"):
        for _ in range(3):
            torch.mm(x, w)
    assert r.cache_hits == 2 and r.casts["float32>bfloat16 [3, 3]"] == 1


def test_backward_is_marked_and_the_fused_derivative_reports_its_products():
    x, w = torch.ones(2, 3, requires_grad=True), torch.ones(4, 3, requires_grad=True)
    with debug.op_report() as r:
        torch.nn.functional.linear(x, w).sum().backward()
    assert [(row.name, row.backward) for row in r if row.is_product] == [("linear", False), ("mm", True), ("mm", True)]
    assert [row.result_shapes for row in r if row.is_product] == [((2, 4),), ((2, 3),), ((4, 3),)]
    assert not any(row.backward for row in r if row.name == "sum" and row.depth == 0 and row.shapes == ((2, 4),))


def test_watching_changes_no_result():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((5, 7)).astype(np.float32), rng.standard_normal((3, 7)).astype(np.float32)
    gradients = []
    for watched in (False, True):
        x, w = (torch.tensor(v, requires_grad=True) for v in values)
        with torch.autocast("cpu", dtype=torch.float16):
            if watched:
                with debug.op_report():
                    torch.nn.functional.linear(x, w).tanh().sum().backward()
            else:
                torch.nn.functional.linear(x, w).tanh().sum().backward()
        gradients.append((x.grad.numpy(), w.grad.numpy()))
    assert np.array_equal(gradients[0][0], gradients[1][0]) and np.array_equal(gradients[0][1], gradients[1][1])


def test_reports_nest():
    x = torch.ones(2)
    with debug.op_report() as outer:
        x.exp()
        with debug.op_report() as inner:
            x.log()
        x.sin()
    assert names(outer) == ["exp", "log", "sin"] and names(inner) == ["log"]


def test_reports_may_end_in_any_order():
    x = torch.ones(2)
    first, second = debug.op_report(), debug.op_report()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    x.exp()
    second.__exit__(None, None, None)
    x.log()
    assert names(first) == [] and names(second) == ["exp"]


def test_entering_again():
    x = torch.ones(2)
    r = debug.op_report()
    with r:
        x.exp()
        with pytest.raises(RuntimeError, match="open already"), r:
            pass
    x.log()
    with r:
        x.sin()
    assert names(r) == ["exp", "sin"]


def test_an_op_that_raises():
    with debug.op_report() as r:
        with pytest.raises(RuntimeError):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        torch.ones(2).exp()
    failed = next(row for row in r if row.name == "mm")
    assert failed.error == "RuntimeError" and failed.results == () and not failed.is_product
    assert str(failed) == "mm: f32[2, 3], f32[2, 3] -> raised RuntimeError"
    assert next(row for row in r if row.name == "exp").depth == 0
    assert r.products == []


def test_a_refusal_of_autocast_is_a_row_too():
    with torch.cuda.emulate():
        p = torch.full((2,), 0.5, device="cuda")
        with debug.op_report() as r, torch.autocast("cuda"), pytest.raises(RuntimeError):
            torch.nn.functional.binary_cross_entropy(p, p)
    assert [(row.name, row.error, row.device) for row in r] == [("binary_cross_entropy", "RuntimeError", "cuda")]


def test_exceptions_end_the_report():
    x = torch.ones(2)
    with pytest.raises(KeyError), debug.op_report() as r:
        x.exp()
        raise KeyError
    x.log()
    assert names(r) == ["exp"]


def test_other_threads_are_not_watched():
    x = torch.ones(2)
    inside = []

    def body():
        x.exp()
        with debug.op_report() as mine:
            x.log()
        inside.append(names(mine))

    with debug.op_report() as r:
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        x.sin()
    assert names(r) == ["sin"] and inside == [["log"]]


def test_ending_in_another_thread():
    x = torch.ones(2)
    r = debug.op_report()
    r.__enter__()
    x.exp()
    thread = threading.Thread(target=r.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    x.log()
    x.log()
    assert names(r) == ["exp"]


def test_begun_and_ended_by_hooks():
    x, r = torch.ones(2, requires_grad=True), debug.op_report()
    y = x.exp()
    z = y.sin()
    z.register_hook(lambda g: (r.__enter__(), None)[1])
    y.register_hook(lambda g: r.__exit__(None, None, None))
    z.sum().backward()
    x.detach().log()
    assert names(r) and "log" not in names(r) and all(row.backward for row in r)
    with debug.op_report() as later:
        x.detach().log()
    assert names(later) == ["detach", "log"] and not any(row.backward for row in later)


def test_a_failed_backward_leaves_the_mark_right():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    with debug.op_report() as r:
        x.detach()
    assert not any(row.backward for row in r)


def test_bad_sinks_are_refused():
    for bad in ([], (True,), None):
        with pytest.raises(TypeError):
            torch._C._observe_start(bad)
        with pytest.raises(TypeError):
            torch._C._observe_stop(bad)
