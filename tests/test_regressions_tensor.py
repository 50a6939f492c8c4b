"""Faults that random programs and hostile arguments found: tensors, views, in-place ops, the backward pass."""

import gc
import threading
import weakref

import numpy as np
import pytest

import ampnative as torch


class TestSizesBeyondMemory:
    def test_as_strided_overflow_is_refused(self) -> None:
        with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
            torch.as_strided(torch.ones(4), (2**33,), (2**31,))

    def test_narrow_length_overflow_is_refused(self) -> None:
        with pytest.raises(RuntimeError, match="exceeds dimension size"):
            torch.ones(4).narrow(0, 1, 2**63 - 1)

    def test_expand_overflow_is_refused(self) -> None:
        with pytest.raises(RuntimeError, match="numel: integer multiplication overflow"):
            torch.ones(1).expand(2**40, 2**40)

    def test_view_as_wider_format_needs_an_aligned_start(self) -> None:
        x = torch.arange(6, dtype=torch.int16)
        assert x[2:].view(torch.int32).storage_offset() == 1
        with pytest.raises(RuntimeError, match="storage_offset"):
            x[1:5].view(torch.int32)


class TestArange:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [((2, 10, 3), [2, 5, 8]), ((5, 0, -2), [5, 3, 1]), ((0, 6, 2), [0, 2, 4]), ((3,), [0, 1, 2]), ((4, 4, -1), [])],
    )
    def test_whole_steps(self, arguments: tuple[int, ...], expected: list[int]) -> None:
        assert torch.arange(*arguments).tolist() == expected

    def test_fractional_step(self) -> None:
        assert np.array_equal(torch.arange(0, 1, 0.25).numpy(), np.float32([0, 0.25, 0.5, 0.75]))
        assert torch.arange(1, -1, -0.5).tolist() == [1.0, 0.5, 0.0, -0.5]

    def test_bad_steps(self) -> None:
        for step in (0, float("nan")):
            with pytest.raises(RuntimeError, match="step must be nonzero"):
                torch.arange(0, 1, step)
        with pytest.raises(RuntimeError, match="invalid size"):
            torch.arange(-(2**63), 2**63 - 1, 1)


class TestData:
    def test_own_data_with_many_dimensions(self) -> None:
        x = torch.ones(1, 1, 1, 1, 1, 1, 1, 2)
        x.data = x
        assert tuple(x.shape) == (1, 1, 1, 1, 1, 1, 1, 2) and x.sum().item() == 2

    def test_integers_cannot_replace_what_requires_grad(self) -> None:
        w = torch.ones(4, requires_grad=True)
        with pytest.raises(RuntimeError, match="must be floating point"):
            w.data = torch.ones(4, dtype=torch.int64)
        assert w.dtype == torch.float32

    def test_a_view_with_new_data_leaves_its_base_alone(self) -> None:
        x = torch.ones(4, requires_grad=True) * 1
        v = x[1:]
        v.data = torch.zeros(3)
        v.mul_(2)
        x.sum().backward()
        assert x.tolist() == [1, 1, 1, 1] and v.tolist() == [0, 0, 0]

    def test_cached_cast_of_the_old_data_is_dropped(self) -> None:
        w, x = torch.ones(2, 2, requires_grad=True), torch.ones(1, 2)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            first = torch.nn.functional.linear(x, w)
            w.data = torch.full((2, 2), 3.0)
            second = torch.nn.functional.linear(x, w)
        assert first.tolist() == [[2, 2]] and second.tolist() == [[6, 6]]


class TestOut:
    def test_an_input_of_another_shape_is_no_output(self) -> None:
        x = torch.ones(1, 3)
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            torch.add(x, torch.ones(4, 3), out=x)
        assert x.tolist() == [[1, 1, 1]]

    @pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
    def test_a_reduced_input_is_read_before_it_is_resized(self) -> None:
        x = torch.ones(50, 30)
        torch.sum(x, 0, out=x)
        assert x.tolist() == [50.0] * 30
        y = torch.ones(5, 3)
        torch.mm(y, torch.ones(3, 2), out=y)
        assert y.tolist() == [[3.0, 3.0]] * 5

    def test_inputs_that_require_grad_are_refused(self) -> None:
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            torch.add(torch.ones(2, requires_grad=True), 1, out=torch.empty(2))


class TestInPlace:
    def test_one_value_may_be_written_to_shared_elements(self) -> None:
        x = torch.ones(1).expand(3)
        assert x.fill_(2).tolist() == [2, 2, 2] and x.zero_().tolist() == [0, 0, 0]
        with pytest.raises(RuntimeError, match="unsupported operation"):
            x.copy_(torch.ones(3))

    def test_copy_of_the_own_transpose(self) -> None:
        x = torch.arange(9.0).reshape(3, 3)
        x.copy_(x.t().clone())
        assert x.tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
        y = torch.arange(12.0).reshape(3, 4)
        y[:, :3].copy_(y[:, :3].t())  # with gaps, which nobody looks into
        assert y.tolist() == [[0, 4, 8, 3], [1, 5, 9, 7], [2, 6, 10, 11]]

    def test_nothing_is_written_when_the_graph_could_not_keep_an_operand(self) -> None:
        with torch.inference_mode():
            factor = torch.full((4,), 3.0)
        x = torch.ones(4, requires_grad=True) * 1
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
            x.mul_(factor)
        assert x.tolist() == [1, 1, 1, 1] and x._version == 0


class TestHistory:
    def test_a_view_whose_base_got_a_history_is_no_leaf(self) -> None:
        x = torch.ones(4)
        v = x[1:]
        x.mul_(torch.ones(4, requires_grad=True))
        assert v.requires_grad and not v.is_leaf
        with pytest.raises(RuntimeError, match="leaf variables"):
            v.requires_grad_(False)

    @pytest.mark.parametrize("wrong", [torch.ones(2), torch.ones(3, dtype=torch.float64)], ids=["size", "type"])
    def test_hooks_keep_shape_and_dtype(self, wrong: torch.Tensor) -> None:
        for leaf in (True, False):
            x = torch.ones(3, requires_grad=True)
            y = x * 2
            (x if leaf else y).register_hook(lambda g: wrong)
            with pytest.raises(RuntimeError, match="has changed the (size|type) of value"):
                y.sum().backward()
            assert x.grad is None

    def test_a_leaf_frozen_after_the_forward_pass_gets_no_gradient(self) -> None:
        x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        y = (x * w).sum()
        x.requires_grad_(False)
        y.backward()
        assert x.grad is None and w.grad.tolist() == [1, 1]

    def test_clamp_passes_gradients_to_a_single_bound(self) -> None:
        x, low = torch.tensor([1.0, 5.0], requires_grad=True), torch.tensor(3.0, requires_grad=True)
        x.clamp(min=low).sum().backward()
        assert x.grad.tolist() == [0, 1] and low.grad.item() == 1

    @pytest.mark.parametrize("name", ["eq_", "ne_", "lt_", "le_", "gt_", "ge_", "logical_and_", "logical_or_", "logical_xor_"])
    def test_comparing_in_place_ends_the_old_history(self, name: str) -> None:
        x = torch.ones(2, requires_grad=True)
        y = x * 2
        getattr(y, name)(torch.full((2,), 2.0))
        y.sum().backward()
        assert set(y.tolist()) <= {0.0, 1.0} and x.grad.tolist() == [0, 0]

    def test_attributes_may_form_a_cycle(self) -> None:
        class Token:
            pass

        x, token = torch.ones(3), Token()
        dead = weakref.ref(token)
        x.me, x.token = x, token
        del x, token
        gc.collect()
        assert dead() is None


class TestIndices:
    def test_byte_masks_use_up_their_dimensions(self) -> None:
        x = torch.arange(8).reshape(2, 2, 2)
        assert x[..., torch.tensor([[1, 0], [0, 1]], dtype=torch.uint8)].tolist() == [[0, 3], [4, 7]]

    def test_gather_and_index_select_do_not_count_from_the_end(self) -> None:
        x, back = torch.ones(3, 3), torch.tensor([[-1]])
        with pytest.raises(RuntimeError, match="out of bounds"):
            x.gather(0, back)
        with pytest.raises(RuntimeError, match="out of bounds"):
            x.scatter_add(0, back, torch.ones(1, 1))
        with pytest.raises(IndexError, match="out of range"):
            torch.index_select(x, 0, back[0])
        assert x[torch.tensor([-1])].shape == (1, 3)

    def test_nothing_to_join(self) -> None:
        with pytest.raises(ValueError, match="non-empty list"):
            torch.cat([])


class TestArgumentsThatChangeWhileRead:
    def test_a_list_of_integers_that_empties_itself(self) -> None:
        class Clearing:
            def __index__(self) -> int:
                sizes.clear()
                return 1

        sizes: list[object] = []
        for call in (torch.zeros, torch.ones(1, 1, 1).permute, torch.ones(2, 2, 2).sum):
            sizes[:] = [Clearing(), 2, 3]
            with pytest.raises(RuntimeError, match="changed its size"):
                call(sizes)

    def test_a_module_that_removes_itself(self) -> None:
        class Leaving(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                del net[0]
                gc.collect()
                return x + self.step

        net = torch.nn.Sequential(Leaving())
        net[0].step = 1
        assert net(torch.zeros(1)).tolist() == [1]


class TestOrderOfDimensions:
    """Element-wise ops, copies and *_like keep the order of dimensions in memory; reference: PyTorch 2.15."""

    def test_permuted(self):
        x = torch.randn(3, 4).t()
        results = (x.exp(), x.clone(), x + 1, x + x, torch.zeros_like(x), x.half(), x + torch.ones(4, 1), torch.where(x > 0, x, 0.0))
        assert [r.stride() for r in results] == [(1, 4)] * len(results)
        assert (torch.ones(4, 3) + x).stride() == x.contiguous().stride() == (3, 1)
        assert x.contiguous().data_ptr() != x.data_ptr() and x.reshape(-1).tolist() == [v for row in x.tolist() for v in row]

    def test_sliced(self):
        y = torch.randn(2, 3, 4).permute(2, 0, 1)
        assert y.relu().stride() == (1, 12, 4) and y[1:].exp().stride() == (1, 9, 3)
        assert torch.equal(y[1:].exp(), y[1:].contiguous().exp())

    def test_gradients_have_their_leaf_s_order(self):
        w = torch.randn(3, 4).t().requires_grad_()
        w.sum().backward()
        assert w.grad.stride() == (1, 4)
        w = torch.randn(4, 3).requires_grad_()
        (w.t() * torch.randn(3, 4)).sum().backward()
        assert w.grad.stride() == (3, 1)


def test_logits_loss_keeps_small_slopes():
    x = torch.tensor([-25.0, 25.0, -25.0, 25.0], requires_grad=True)
    torch.nn.functional.binary_cross_entropy_with_logits(x, torch.tensor([0.0, 1.0, 1.0, 0.0]), reduction="sum").backward()
    assert np.allclose(x.grad.numpy(), [1.3887943e-11, -1.3887943e-11, -1.0, 1.0], rtol=1e-6, atol=0)


def test_exponential_of_zero_is_one():
    assert torch.zeros(40).exp().tolist() == [1.0] * 40
    assert torch.log_softmax(torch.full((3, 1), 4.0), 1).tolist() == [[0.0]] * 3


def test_data_may_be_replaced_while_another_thread_computes():
    x, stop, failures = torch.ones(700, 700), threading.Event(), []

    def compute():
        while not stop.is_set():
            total = (x * 2).sum().item()
            if total not in (2.0 * 700 * 700, 2.0 * 300 * 300):
                failures.append(total)

    thread = threading.Thread(target=compute)
    thread.start()
    for _ in range(150):
        x.data = torch.ones(300, 300)
        x.data = torch.ones(700, 700)
    stop.set()
    thread.join()
    assert not failures


def test_views_made_without_gradients_are_not_written_with_them():
    leaf = torch.ones(3, requires_grad=True)
    for x in (leaf, leaf * 2):
        with torch.no_grad():
            v, parts = x[:2], x.unbind(0)
            w = v[:1]
            v.mul_(3)
        for target in (v, w, parts[0], v[:1]):
            with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
                target.mul_(2)
        assert x.tolist() in ([3, 3, 1], [6, 6, 2])
    free = torch.ones(3)
    with torch.no_grad():
        v = free[:2]
    v.mul_(2)
    assert free.tolist() == [2, 2, 1]
    y = leaf * 1
    y.detach()[:2].mul_(2)
    assert y[0].item() == 6


@pytest.mark.parametrize(
    "name",
    [
        "exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
        "atanh", "exp2", "expm1", "log1p", "log2", "log10", "rsqrt", "sigmoid", "reciprocal"
    ],
)  # fmt: skip
def test_functions_of_complex_numbers(name):
    z = np.array([3 + 4j, -1.5 + 0.25j, 0.3 - 2j, 1e-3 + 1e-3j, -0.7 - 0.1j])
    numpy_name = {f"a{f}": f"arc{f}" for f in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}.get(name, name)
    special = {"rsqrt": lambda v: 1 / np.sqrt(v), "sigmoid": lambda v: 1 / (1 + np.exp(-v)), "reciprocal": lambda v: 1 / v}
    want = special.get(name, getattr(np, numpy_name, None))(z)
    for dtype, bound in ((torch.complex64, 1e-5), (torch.complex128, 1e-12)):
        x = torch.tensor(z.tolist(), dtype=dtype)
        got = getattr(torch, name)(x)
        assert got.dtype == dtype
        np.testing.assert_allclose(got.numpy(), want, rtol=bound)
        np.testing.assert_allclose(getattr(x.clone(), name + "_")().numpy(), want, rtol=bound)
