"""Tensors on "meta": what runs on them gives shapes, dtypes and histories as on the CPU, or an error that says why it cannot.
Nothing reads the memory that they do not have."""

import numpy as np
import pytest
from gradient_examples import EXAMPLES

import ampnative as torch
from ampnative import nn

F = nn.functional
REASON = "meta|same device|depends on values"


def meta(*shape, **options):
    return torch.empty(shape, device="meta", **options)


def leaves(found):
    if isinstance(found, torch.Tensor):
        return [found]
    return [t for part in found for t in leaves(part)] if isinstance(found, list | tuple) else []


def kinds(tensors):
    return [None if t is None else (t.shape, t.dtype, t.requires_grad) for t in tensors]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_give_the_same_kinds_or_a_reason(name):
    for example in EXAMPLES[name]:
        real = [torch.from_numpy(a).requires_grad_() for a in example.inputs]
        bare = [meta(*a.shape, dtype=torch.float64, requires_grad=True) for a in example.inputs]
        try:
            with torch.device("meta"):
                found = leaves(example.function(*bare))
            recorded = [t for t in found if t.requires_grad]
            torch.autograd.backward(recorded, [torch.empty_like(t) for t in recorded])
        except (RuntimeError, NotImplementedError) as error:
            assert any(word in str(error) for word in REASON.split("|")), error
            continue
        wanted = leaves(example.function(*real))
        assert kinds(found) == kinds(wanted)
        recorded = [t for t in wanted if t.requires_grad]
        torch.autograd.backward(recorded, [torch.ones_like(t) for t in recorded])
        assert kinds(x.grad for x in bare) == kinds(x.grad for x in real)
        assert all(t.is_meta for t in found if t.requires_grad)


# ---- loss scaling and clipping ----


def trained(model_device, scale_device):
    """A scaler, an optimizer and its one layer, after backward."""
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones((), device=scale_device))
    layer = nn.Linear(2, 2, device=model_device)
    layer(torch.ones(1, 2, device=model_device)).sum().backward()
    return scaler, torch.optim.SGD(layer.parameters(), 0.1), layer


def test_gradients_with_memory_are_not_unscaled_by_a_scale_without():
    for call in ("unscale_", "step", "clip_grad_norm_"):
        scaler, optimizer, layer = trained("cpu", "meta")
        with pytest.raises(NotImplementedError, match="meta"):
            getattr(scaler, call)(optimizer, *([1.0] if "clip" in call else []))
        assert layer.weight.grad.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("scale_device", ["meta", "cpu"])
def test_a_model_on_meta_is_unscaled_and_its_step_refused(scale_device):
    scaler, optimizer, layer = trained("meta", scale_device)
    version = layer.weight.grad._version
    scaler.unscale_(optimizer)
    assert layer.weight.grad._version == version + 1
    norm = scaler.clip_grad_norm_(optimizer, 1.0)
    assert norm.is_meta and norm.shape == () and norm.dtype == torch.float32
    with pytest.raises(RuntimeError, match="meta"):
        scaler.step(optimizer)


def test_the_scaler_ops_take_meta_tensors_of_their_kinds():
    flag = meta()
    assert torch._amp_foreach_non_finite_check_and_unscale_([meta(2)], flag, meta()) is None
    assert torch._amp_update_scale_(flag, meta(dtype=torch.int32), meta(), 2.0, 0.5, 10) is flag
    with pytest.raises(RuntimeError, match="inv_scale must be on the CPU device"):
        torch._amp_foreach_non_finite_check_and_unscale_([torch.ones(2)], meta(), meta())
    with pytest.raises(RuntimeError, match="inv_scale must be on the meta device"):
        torch._amp_foreach_non_finite_check_and_unscale_([meta(2)], torch.ones(()), torch.ones(()))


def with_gradients(*tensors):
    parameters = [nn.Parameter(t) for t in tensors]
    for p in parameters:
        p.grad = torch.ones_like(p)
    return parameters


@pytest.mark.parametrize("p", [1.0, 2.0, np.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_norms_of_meta_gradients_have_no_value(p, dtype):
    parameters = with_gradients(meta(2, dtype=dtype), meta(3))
    norm = nn.utils.clip_grad_norm_(parameters, 1.0, p)
    assert norm.is_meta and norm.shape == () and norm.dtype == torch.float32
    total = nn.utils.get_total_norm([q.grad for q in parameters], p)
    assert total.is_meta and nn.utils.clip_grads_with_norm_(parameters, 1.0, total) is None
    nn.utils.clip_grad_value_(parameters, 1.0)
    with pytest.raises(RuntimeError, match="no value"):
        nn.utils.clip_grad_norm_(parameters, 1.0, p, error_if_nonfinite=True)
    with pytest.raises(RuntimeError, match="1 of 2 tensors are on the meta device"):
        nn.utils.clip_grad_norm_(with_gradients(meta(2), torch.ones(2)), 1.0, p)


# ---- optimizers ----

OPTIMIZERS = {
    "SGD": {}, "SGD with momentum": {"momentum": 0.9}, "Adam": {}, "Adam with amsgrad": {"amsgrad": True}, "AdamW": {},
    "NAdam": {}, "Adagrad": {}, "RMSprop": {}, "Adadelta": {}, "Adamax": {}, "RAdam": {}, "Rprop": {},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_step_on_meta(name):
    layer, counted = nn.Linear(100, 100, device="meta"), nn.Linear(100, 100)
    optimizers = [getattr(torch.optim, name.split()[0])(m.parameters(), lr=0.1, **OPTIMIZERS[name]) for m in (layer, counted)]
    for _ in range(2):
        for m, optimizer in zip((layer, counted), optimizers, strict=True):
            m(torch.ones(1, 100, device=m.weight.device)).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            m.weight.to(torch.float16)  # asks the optimizer for a copy
    kept, wanted = (o.state_dict()["state"].get(0, {}) for o in optimizers)
    assert {k: (v.shape, v.dtype) for k, v in kept.items()} == {k: (v.shape, v.dtype) for k, v in wanted.items()}
    assert all(v.is_meta == (v.dim() > 0) for v in kept.values())
    if "step" in kept:
        assert kept["step"].item() == 2


# ---- recurrent nets ----


@pytest.mark.parametrize("settings", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}])
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_recurrent_nets_run_on_meta(name, settings):
    shapes = []
    for device in ("meta", "cpu"):
        net = getattr(nn, name)(3, 4, device=device, **settings)
        x = torch.ones(5, 2, 3, device=device, requires_grad=True)
        y, state = net(x)
        y.sum().backward()
        found = [y, *leaves(state), x.grad, *(p.grad for p in net.parameters())]
        assert all(t.device.type == device for t in found)
        shapes.append(kinds(found))
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_packed_sequences_run_on_meta(name):
    packed = nn.utils.rnn.pack_padded_sequence(meta(5, 2, 3), torch.tensor([5, 3]))
    found, _ = getattr(nn, name)(3, 4, device="meta")(packed)
    assert found.data.is_meta and found.data.shape == (8, 4)


@pytest.mark.parametrize("name", ["RNNCell", "GRUCell", "LSTMCell"])
def test_recurrent_cells_run_on_meta(name):
    cell, x = getattr(nn, name)(3, 4, device="meta"), meta(2, 3, requires_grad=True)
    h = leaves(cell(x))[0]
    h.sum().backward()
    assert h.is_meta and h.shape == (2, 4) and x.grad.is_meta and cell.weight_hh.grad.shape == cell.weight_hh.shape


# ---- single functions ----


def test_masked_fill_takes_a_value_without_memory():
    mask = meta(3, dtype=torch.bool)
    for dtype in (torch.float32, torch.float16, torch.int64):
        assert meta(3, dtype=dtype).masked_fill(mask, meta()).is_meta
        assert meta(3, dtype=dtype).masked_fill_(mask, meta(dtype=torch.float64)).dtype == dtype
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(3).masked_fill(torch.ones(3) > 0, meta())
    with pytest.raises(RuntimeError, match="overflow"):  # a number's range is known here too
        meta(3, dtype=torch.float16).masked_fill(mask, 1e30)


def test_one_hot_on_meta_needs_the_number_of_classes():
    assert F.one_hot(meta(3, 2, dtype=torch.int64), 4).shape == (3, 2, 4)
    with pytest.raises(RuntimeError, match="meta"):
        F.one_hot(meta(3, dtype=torch.int64))


def test_gradients_that_look_for_zeros_do_without_on_meta():
    for f in (lambda x: x.prod(), lambda x: x.prod(1), lambda x: x.cumprod(1)):
        x = meta(3, 20, requires_grad=True)
        f(x).sum().backward()
        assert x.grad.is_meta and x.grad.shape == x.shape


def test_the_gradient_of_rows_does_not_read_their_numbers():
    x = meta(5, 20, requires_grad=True)
    x[meta(3, dtype=torch.int64)].sum().backward()
    assert x.grad.is_meta and x.grad.shape == x.shape


def test_margins_of_several_labels_on_meta():
    x = meta(3, 4, requires_grad=True)
    loss = F.multilabel_margin_loss(x, meta(3, 4, dtype=torch.int64))
    loss.backward()
    assert loss.shape == () and x.grad.shape == x.shape


# ---- indices in host memory ----

ROWS, PLACES = torch.tensor([0, 2]), torch.tensor([[0, 1], [1, 0]])
INDEXED = {
    "embedding": lambda x: F.embedding(PLACES.to(x.index_device), x),
    "embedding_bag": lambda x: F.embedding_bag(PLACES.to(x.index_device), x),
    "gather": lambda x: x.gather(1, PLACES.to(x.index_device)),
    "index_select": lambda x: x.index_select(0, ROWS.to(x.index_device)),
    "scatter": lambda x: x.scatter(1, PLACES.to(x.index_device), 2.0),
    "scatter_add": lambda x: x.scatter_add(1, PLACES.to(x.index_device), x[:2, :2]),
    "index_add": lambda x: x.index_add(0, ROWS.to(x.index_device), x[:2]),
    "index": lambda x: x[ROWS.to(x.index_device)],
}


@pytest.mark.parametrize("name", INDEXED)
def test_indices_on_the_cpu_choose_from_meta_and_never_the_other_way_round(name):
    grads = []
    for device in ("meta", "cpu"):
        x = torch.ones(3, 4, device=device, requires_grad=True)
        y = x * 1
        y.index_device = "cpu"
        found = INDEXED[name](y)
        found.sum().backward()
        grads.append(kinds([found, x.grad]))
        assert found.device == x.grad.device == x.device
    assert grads[0] == grads[1]
    x = torch.ones(3, 4)
    x.index_device = "meta"
    with pytest.raises((RuntimeError, NotImplementedError), match=REASON):
        INDEXED[name](x)


def test_an_embedding_on_meta_takes_a_batch_of_the_cpu():
    table = nn.Embedding(3, 4, padding_idx=0, device="meta")
    found = table(torch.tensor([[0, 1]]))
    found.sum().backward()
    assert found.is_meta and found.shape == (1, 2, 4) and table.weight.grad.is_meta


def test_values_on_the_cpu_are_written_to_meta_and_never_the_other_way_round():
    x = meta(3, 4)
    x[ROWS] = torch.ones(4)
    x[0] = torch.ones(4)
    assert x._version == 2
    x = torch.zeros(3, 4)
    for key in (ROWS, 0):
        with pytest.raises((RuntimeError, NotImplementedError), match=REASON):
            x[key] = meta(4)
    assert x.sum() == 0


# ---- what must be on one side ----


def test_data_does_not_change_between_memory_and_none():
    for x, y in ((nn.Parameter(torch.ones(3)), meta(3)), (meta(3), torch.ones(3))):
        device = x.device
        with pytest.raises(RuntimeError, match="incompatible tensor type"):
            x.data = y
        assert x.device == device


def test_modules_do_and_keep_their_parameters():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = net[0].weight
    assert net.to("meta")[0].weight is weight and weight.is_meta and net[1].running_mean.is_meta
    assert net.to_empty(device="cpu")[0].weight is weight and not weight.is_meta
    lazy = nn.LazyLinear(3).to("meta")
    assert lazy(meta(2, 4)).shape == (2, 3) and lazy.weight.is_meta


def test_gradients_are_given_on_the_output_s_device():
    for x, g in ((meta(3, requires_grad=True), torch.ones(3)), (torch.ones(3, requires_grad=True), meta(3))):
        with pytest.raises(RuntimeError, match="expected device .* but got"):
            (x * 2).backward(g)
        with pytest.raises(RuntimeError, match="expected device .* but got"):
            torch.autograd.grad(x * 2, x, g)
        with pytest.raises(RuntimeError, match="the tensor is on .*, the gradient on"):
            x.grad = g
        assert x.grad is None
