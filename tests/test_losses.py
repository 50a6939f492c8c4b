"""Losses that are made of other ops, against float64 oracles, and their modules."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch

F, nn = torch.nn.functional, torch.nn
EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-20, "float64": 2.0**-45}


def reduced(loss, reduction):
    return {"none": loss, "sum": np.sum(loss), "mean": np.mean(loss)}[reduction]


def xlogx(t):
    return np.where(t > 0, t * np.log(np.where(t > 0, t, 1)), 0)


def cosine_embedding(x, y, margin=0.2):
    cosine = np.sum(x * y, 1) / np.sqrt((np.sum(x * x, 1) + 1e-12) * (np.sum(y * y, 1) + 1e-12))
    positive = np.arange(len(x)) % 2 == 0
    return np.where(positive, 1 - cosine, np.maximum(cosine - margin, 0))


def poisson(x, t, full):
    stirling = t * np.log(np.where(t > 1, t, 1)) - t + 0.5 * np.log(2 * math.pi * np.where(t > 1, t, 1))
    return np.exp(x) - t * x + (np.where(t > 1, stirling, 0) if full else 0)


def triplet(x, y, z, p, swap):
    def distance(a, b):
        return np.sum(np.abs(a - b + 1e-6) ** p, -1) ** (1 / p)

    far = np.minimum(distance(x, z), distance(y, z)) if swap else distance(x, z)
    return np.maximum(1 + distance(x, y) - far, 0)


def margins(x, p):
    target = np.arange(len(x)) % x.shape[1]
    z = np.maximum(1 - x[np.arange(len(x)), target][:, None] + x, 0) ** p
    z[np.arange(len(x)), target] = 0
    return z.mean(1)


def signs(t):
    return torch.where(t > 0, torch.ones_like(t), -torch.ones_like(t))


# our call, the oracle: of tensors and arrays x, y, z >= 0
CASES = {
    "kl_div": (lambda x, y, z, r: F.kl_div(x, z, reduction=r), lambda x, y, z: xlogx(z) - z * x),
    "kl_div log": (lambda x, y, z, r: F.kl_div(x, y, reduction=r, log_target=True), lambda x, y, z: np.exp(y) * (y - x)),
    "poisson": (lambda x, y, z, r: F.poisson_nll_loss(x, z, reduction=r), lambda x, y, z: poisson(x, z, False)),
    "poisson full": (lambda x, y, z, r: F.poisson_nll_loss(x, z, full=True, reduction=r), lambda x, y, z: poisson(x, z, True)),
    "hinge": (
        lambda x, y, z, r: F.hinge_embedding_loss(x, signs(y), 0.5, reduction=r),
        lambda x, y, z: np.where(y > 0, x, np.maximum(0.5 - x, 0)),
    ),
    "ranking": (
        lambda x, y, z, r: F.margin_ranking_loss(x, y, signs(z - 1), 0.3, reduction=r),
        lambda x, y, z: np.maximum(0.3 - np.where(z > 1, 1, -1) * (x - y), 0),
    ),
    "soft_margin": (lambda x, y, z, r: F.soft_margin_loss(x, y, reduction=r), lambda x, y, z: np.logaddexp(0, -x * y)),
    "cosine": (
        lambda x, y, z, r: F.cosine_embedding_loss(
            x, y, 1 - 2 * (torch.arange(len(x), device=x.device) % 2), 0.2, reduction=r
        ),
        lambda x, y, z: cosine_embedding(x, y),
    ),
    "triplet": (lambda x, y, z, r: F.triplet_margin_loss(x, y, z, reduction=r), lambda x, y, z: triplet(x, y, z, 2, False)),
    "triplet swap": (
        lambda x, y, z, r: F.triplet_margin_loss(x, y, z, p=1, swap=True, reduction=r),
        lambda x, y, z: triplet(x, y, z, 1, True),
    ),
    "multi_margin": (
        lambda x, y, z, r: F.multi_margin_loss(x, torch.arange(len(x), device=x.device) % x.size(1), p=2, reduction=r),
        lambda x, y, z: margins(x, 2),
    ),
}


@pytest.mark.filterwarnings("ignore:reduction")
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(CASES)),
    st.sampled_from(["none", "sum", "mean"]),
    st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
    st.tuples(st.integers(1, 5), st.integers(1, 4)),
    st.booleans(),
    st.sampled_from(["cpu", "cuda"]),
    st.integers(0, 9),
)
def test_values(name, reduction, dtype, shape, transposed, device, seed):
    ours, oracle = CASES[name]
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(shape), rng.standard_normal(shape), 3 * rng.random(shape)]
    with torch.cuda.emulate():
        tensors = [torch.tensor(a.T if transposed else a).to(device, getattr(torch, dtype)) for a in arrays]
        tensors = [t.t() if transposed else t for t in tensors]
        got = ours(*tensors, reduction).cpu()
    exact = [t.cpu().double().numpy() for t in tensors]
    want = reduced(oracle(*exact), reduction)
    assert got.dtype == getattr(torch, dtype) and tuple(got.shape) == np.shape(want)
    size = 20 * (1 if reduction != "sum" else math.prod(shape))
    assert np.allclose(got.double().numpy(), want, rtol=2 * EPS[dtype], atol=size * EPS[dtype] ** (2 if dtype[-2:] == "16" else 1))


def test_multilabel_margin():
    x = np.random.default_rng(0).standard_normal((3, 4))
    labels = [[3, 0, -1, 1], [-1, 2, 0, 1], [2, 1, 0, 3]]
    want = []
    for row, given_labels in zip(x, labels, strict=True):
        mine = list(itertools.takewhile(lambda k: k >= 0, given_labels))
        want.append(sum(max(0, 1 - row[j] + row[i]) for j in mine for i in range(4) if i not in mine) / 4)
    got = F.multilabel_margin_loss(torch.tensor(x), torch.tensor(labels), reduction="none")
    assert np.allclose(got.numpy(), want, rtol=1e-13)
    one = F.multilabel_margin_loss(torch.tensor(x[0]), torch.tensor(labels[0]), reduction="none")
    assert one.shape == () and math.isclose(one.item(), want[0])


def alignments(log_probs, target, blank):
    """The summed probability of all paths that give the target when repeats are joined and blanks dropped."""
    total = 0.0
    for path in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs)):
        if [k for k, _ in itertools.groupby(path) if k != blank] == list(target):
            total += math.exp(sum(log_probs[t, k] for t, k in enumerate(path)))
    return total


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 4), st.lists(st.integers(0, 1), max_size=3), st.integers(0, 2), st.booleans(), st.integers(0, 5))
def test_ctc_against_all_paths(steps, labels, blank, batched, seed):
    logits = np.random.default_rng(seed).standard_normal((4, 2, 3))
    log_probs = torch.tensor(logits).log_softmax(2)
    target = [k + (k >= blank) for k in labels]  # labels other than the blank
    padded = torch.tensor([target + [0] * (3 - len(target)), [(blank + 1) % 3, 0, 0]])
    probability = alignments(log_probs.numpy()[:steps, 0], target, blank)
    if batched:
        loss = F.ctc_loss(log_probs, padded, (steps, 4), (len(target), 1), blank, reduction="none")
        assert loss.shape == (2,)
        loss = loss[0]
    else:
        loss = F.ctc_loss(log_probs[:, 0], padded[0, : len(target)], (steps,), (len(target),), blank, reduction="none")
    assert loss.shape == ()
    if probability == 0:
        assert loss.item() == math.inf
        assert F.ctc_loss(log_probs[:, :1], padded[:1], (steps,), (len(target),), blank, zero_infinity=True).item() == 0
    else:
        assert math.isclose(loss.item(), -math.log(probability), rel_tol=1e-12, abs_tol=1e-12)


def test_ctc_reductions_and_lengths():
    log_probs = torch.tensor(np.random.default_rng(1).standard_normal((6, 2, 4))).log_softmax(2)
    each = F.ctc_loss(log_probs, torch.tensor([[1, 2, 2], [3, 0, 0]]), (6, 5), (3, 1), reduction="none")
    joined = torch.tensor([1, 2, 2, 3])
    for lengths in ((6, 5), (3, 1)), (torch.tensor([6, 5]), torch.tensor([3, 1])), ([6, 5], [3, 1]):
        assert F.ctc_loss(log_probs, joined, *lengths, reduction="none").tolist() == each.tolist()
    mean = F.ctc_loss(log_probs, joined, (6, 5), (3, 1))
    assert math.isclose(mean.item(), (each[0].item() / 3 + each[1].item()) / 2)
    assert math.isclose(F.ctc_loss(log_probs, joined, (6, 5), (3, 1), reduction="sum").item(), each.sum().item())
    half = F.ctc_loss(log_probs.half(), joined, (6, 5), (3, 1))
    assert half.dtype == torch.float16 and math.isclose(half.item(), mean.item(), rel_tol=3e-3)


def test_an_impossible_alignment_has_no_gradient_with_zero_infinity():
    x = torch.zeros(2, 2, 3, requires_grad=True)
    log_probs = x.log_softmax(2)
    targets = torch.tensor([[1, 1], [1, 2]])
    F.ctc_loss(log_probs, targets, (2, 2), (2, 2), reduction="sum", zero_infinity=True).backward()
    assert not x.grad[:, 0].any() and x.grad[:, 1].isfinite().all() and x.grad[:, 1].any()


def test_gaussian():
    rng = np.random.default_rng(2)
    mean, target, var = rng.standard_normal((3, 4)), rng.standard_normal((3, 4)), rng.random((3, 4)) + 0.1
    want = 0.5 * (np.log(var) + (mean - target) ** 2 / var)
    tensors = [torch.tensor(a) for a in (mean, target, var)]
    assert np.allclose(F.gaussian_nll_loss(*tensors, reduction="none").numpy(), want, rtol=1e-14)
    full = F.gaussian_nll_loss(*tensors, full=True)
    assert math.isclose(full.item(), want.mean() + 0.5 * math.log(2 * math.pi))
    assert F.gaussian_nll_loss(tensors[0], tensors[1], tensors[2][:, 0]).shape == ()
    assert F.gaussian_nll_loss(tensors[0], tensors[1], 0.5).shape == ()
    tiny = torch.zeros(1, requires_grad=True)
    F.gaussian_nll_loss(torch.ones(1), torch.zeros(1), tiny, eps=0.5).backward()
    assert tiny.grad.item() == 0.5 * (1 / 0.5 - 1 / 0.25)  # the slope at eps


def test_multilabel_soft_margin():
    rng = np.random.default_rng(3)
    x, t, w = rng.standard_normal((3, 4)), rng.random((3, 4)), rng.random(4)
    want = ((t * np.logaddexp(0, -x) + (1 - t) * np.logaddexp(0, x)) * w).mean(1)
    got = F.multilabel_soft_margin_loss(torch.tensor(x), torch.tensor(t), torch.tensor(w), reduction="none")
    assert np.allclose(got.numpy(), want, rtol=1e-13)


X = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.0, -0.5]])
Y = torch.tensor([[0.1, 0.7, 0.2], [0.3, 0.3, 0.4]])
CLASSES = torch.tensor([2, 0])
MODULES = [
    (nn.KLDivLoss(reduction="batchmean"), (X, Y), lambda: F.kl_div(X, Y, reduction="batchmean")),
    (nn.KLDivLoss(reduction="sum", log_target=True), (X, Y), lambda: F.kl_div(X, Y, reduction="sum", log_target=True)),
    (nn.PoissonNLLLoss(log_input=False, full=True), (Y, Y), lambda: F.poisson_nll_loss(Y, Y, log_input=False, full=True)),
    (nn.GaussianNLLLoss(full=True), (X, Y, Y), lambda: F.gaussian_nll_loss(X, Y, Y, full=True)),
    (nn.CosineEmbeddingLoss(0.1), (X, Y, CLASSES - 1), lambda: F.cosine_embedding_loss(X, Y, CLASSES - 1, 0.1)),
    (nn.HingeEmbeddingLoss(2.0), (X, signs(X)), lambda: F.hinge_embedding_loss(X, signs(X), 2.0)),
    (nn.MarginRankingLoss(0.2), (X, Y, signs(X)), lambda: F.margin_ranking_loss(X, Y, signs(X), 0.2)),
    (nn.SoftMarginLoss(), (X, signs(X)), lambda: F.soft_margin_loss(X, signs(X))),
    (nn.MultiMarginLoss(2, 0.5, Y[0]), (X, CLASSES), lambda: F.multi_margin_loss(X, CLASSES, 2, 0.5, Y[0])),
    (nn.MultiLabelMarginLoss(), (X[0], torch.tensor([1, -1, 0])), lambda: F.multilabel_margin_loss(X[0], torch.tensor([1, -1, 0]))),
    (nn.MultiLabelSoftMarginLoss(), (X, Y), lambda: F.multilabel_soft_margin_loss(X, Y)),
    (nn.TripletMarginLoss(0.4, p=1, swap=True), (X, Y, -Y), lambda: F.triplet_margin_loss(X, Y, -Y, 0.4, p=1, swap=True)),
    (
        nn.TripletMarginWithDistanceLoss(margin=3.0, swap=True),
        (X, Y, -Y),
        lambda: F.triplet_margin_with_distance_loss(X, Y, -Y, margin=3.0, swap=True),
    ),
    (nn.CTCLoss(), (X.log_softmax(1), CLASSES[:1], (2,), (1,)), lambda: F.ctc_loss(X.log_softmax(1), CLASSES[:1], (2,), (1,))),
    (nn.PairwiseDistance(1, keepdim=True), (X, Y), lambda: F.pairwise_distance(X, Y, 1, keepdim=True)),
]


@pytest.mark.parametrize(("module", "args", "function"), MODULES, ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "")
def test_modules_call_their_functions(module, args, function):
    assert module(*args).tolist() == function().tolist()
    assert type(module).__name__ in repr(module)


def test_weights_are_buffers():
    assert list(nn.MultiMarginLoss(weight=Y[0]).state_dict()) == ["weight"]
    assert list(nn.MultiLabelSoftMarginLoss(weight=Y[0]).state_dict()) == ["weight"]


@pytest.mark.parametrize(
    ("call", "error", "phrase"),
    [
        (lambda: F.kl_div(X, Y, reduction="foo"), ValueError, "foo is not a valid value for reduction"),
        (lambda: F.gaussian_nll_loss(X, Y, -Y), ValueError, "var has negative entry/entries"),
        (lambda: F.gaussian_nll_loss(X, Y, Y[0]), ValueError, "var is of incorrect size"),
        (lambda: F.multi_margin_loss(X, CLASSES, p=3), ValueError, "only p == 1 and p == 2 supported"),
        (lambda: F.multi_margin_loss(X, CLASSES + 1), RuntimeError, "target out of range"),
        (lambda: F.multi_margin_loss(X, CLASSES[:1]), RuntimeError, "inconsistent|target tensor should be 1-D"),
        (lambda: F.multi_margin_loss(X, CLASSES.float()), RuntimeError, "scalar type Long"),
        (lambda: F.multi_margin_loss(X, CLASSES, weight=Y), ValueError, "one-dimensional"),
        (lambda: F.multilabel_margin_loss(X, CLASSES), RuntimeError, "inconsistent target size"),
        (lambda: F.margin_ranking_loss(X, Y[0], X), RuntimeError, "same dimension"),
        (lambda: F.cosine_embedding_loss(X, Y, X), RuntimeError, "multi-target not supported"),
        (lambda: F.cosine_embedding_loss(X, Y, torch.tensor(1)), RuntimeError, "0D target tensor expects 1D input tensors"),
        (lambda: F.triplet_margin_loss(X, Y[0], X), RuntimeError, "same number of dimensions"),
        (lambda: F.triplet_margin_loss(X, Y, X, margin=0), ValueError, "margin must be greater than 0"),
        (lambda: nn.TripletMarginLoss(margin=-1), ValueError, "expected margin to be greater than 0"),
        (lambda: F.ctc_loss(X[:, None], CLASSES, (2,), (2,), blank=3), RuntimeError, "blank must be in label range"),
        (lambda: F.ctc_loss(X[:, None], CLASSES, (3,), (2,)), RuntimeError, "at most 2"),
        (lambda: F.ctc_loss(X[:, None], CLASSES, (2,), (1,)), RuntimeError, "Expected tensor to have size 1"),
        (lambda: F.ctc_loss(X[:, None], CLASSES[None], (2,), (3,)), RuntimeError, "size at least 3"),
        (lambda: F.ctc_loss(X[:, None], CLASSES + 2, (2,), (2,)), RuntimeError, "out of range"),
        (lambda: F.ctc_loss(X[:, None], CLASSES, (2, 2), (2,)), RuntimeError, "batch_size"),
    ],
)
def test_what_is_refused(call, error, phrase):
    with pytest.raises(error, match=phrase):
        call()


def test_warnings():
    with pytest.warns(UserWarning, match="batchmean"):
        F.kl_div(X, Y)
    with pytest.warns(UserWarning, match="will be deprecated"):
        assert F.soft_margin_loss(X, Y, size_average=False).item() == F.soft_margin_loss(X, Y, reduction="sum").item()


def entropy_oracle(x, t, weight, ignore, smoothing):
    """Losses per row, and the gradient of their sum, of (B, C, R) logits in float64."""
    logp = x - x.max(1, keepdims=True)
    logp -= np.log(np.exp(logp).sum(1, keepdims=True))
    w = np.ones(x.shape[1]) if weight is None else weight
    kept = (t != ignore)[:, None]
    one_hot = np.moveaxis(np.eye(x.shape[1])[np.where(kept[:, 0], t, 0)], -1, 1)
    share = ((1 - smoothing) * one_hot + smoothing / x.shape[1]) * w[:, None] * kept
    return -(share * logp).sum(1), np.exp(logp) * share.sum(1, keepdims=True) - share, (w[np.where(kept[:, 0], t, 0)] * kept[:, 0]).sum()


@given(
    st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 7, 64, 300]), st.integers(1, 3)),
    st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
    st.sampled_from(["none", "sum", "mean"]),
    st.booleans(),
    st.sampled_from([0.0, 0.2, 1.0]),
    st.sampled_from(["dense", "transposed", "spaced"]),
    st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_cross_entropy_of_class_numbers(shape, dtype, reduction, weighted, smoothing, layout, seed):
    rng = np.random.default_rng(seed)
    kind = getattr(torch, dtype)
    x = torch.tensor(rng.uniform(-8, 8, shape)).to(kind)
    x = {
        "dense": lambda: x,
        "transposed": lambda: x.transpose(0, 2).contiguous().transpose(0, 2),
        "spaced": lambda: torch.cat([x, x], 1)[:, ::2] if shape[1] % 2 == 0 else x,
    }[layout]().requires_grad_()
    weight = torch.tensor(rng.uniform(0.25, 2, shape[1])).to(kind) if weighted else None
    t = rng.integers(0, shape[1], (shape[0], shape[2]))
    t[0, 0] = -1
    rows, slope, divisor = entropy_oracle(
        x.detach().double().numpy(), t, None if weight is None else weight.double().numpy(), -1, smoothing
    )
    loss = F.cross_entropy(x, torch.tensor(t), weight, ignore_index=-1, reduction=reduction, label_smoothing=smoothing)
    assert loss.dtype is kind and loss.grad_fn.name() == "NllLossBackward0"
    if divisor == 0 and reduction == "mean":
        assert math.isnan(loss.item())
        return
    by = divisor if reduction == "mean" else 1.0
    want = rows if reduction == "none" else rows.sum() / by
    np.testing.assert_allclose(loss.detach().double().numpy(), want, rtol=EPS[dtype], atol=EPS[dtype])
    (fast,) = torch.autograd.grad(loss.sum(), x, retain_graph=True)
    (plain,) = torch.autograd.grad(loss.sum(), x, create_graph=True)
    bound = EPS[dtype] * max(1.0, 1.0 / by)
    for gradient in (fast, plain.detach()):
        np.testing.assert_allclose(gradient.double().numpy(), slope / by, rtol=EPS[dtype], atol=bound)


def test_cross_entropy_keeps_no_probabilities():
    """The loss holds the logits and three numbers per row."""
    x, t = torch.randn(64, 1000, requires_grad=True), torch.arange(64)
    before = torch.cpu.memory_allocated()
    loss = F.cross_entropy(x, t)
    assert torch.cpu.memory_allocated() - before < 64 * 1000  # bytes: a quarter of the logits
    loss.backward()


def test_cross_entropy_leaves_masked_classes_alone():
    """A logit of -inf takes no part and gets exactly no gradient, also under a loss scale."""
    x = torch.tensor([[0.0, -math.inf, 1.0], [-math.inf, -math.inf, 2.0]], requires_grad=True)
    (F.cross_entropy(x, torch.tensor([0, 2])) * 65536).backward()
    gradient = x.grad.numpy()
    assert gradient[0, 1] == 0.0 and (gradient[1] == 0.0).all() and np.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_binary_cross_entropy_of_infinite_logits(dtype):
    x = torch.tensor([math.inf, -math.inf]).to(dtype)[:, None].expand(2, 3)
    target = torch.tensor([0.0, 0.5, 1.0], dtype=dtype).expand(2, 3)
    loss = F.binary_cross_entropy_with_logits(x, target, reduction="none").tolist()
    assert str(loss) == str([[math.inf, math.inf, math.nan], [math.nan] * 3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 3.0]])
@pytest.mark.parametrize("smoothing", [0.0, 0.25])
@pytest.mark.parametrize("target", [1, -100])
def test_one_class_number_in_a_list_is_that_number(dtype, reduction, weight, smoothing, target):
    """Of an input without a batch: the loss has no dimension, and its derivative is that of the plain number."""
    weight = None if weight is None else torch.tensor(weight, dtype=dtype)
    seen = []
    for number in (torch.tensor(target), torch.tensor([target])):
        x = torch.tensor([1.0, 2.0, 4.0], dtype=dtype, requires_grad=True)
        loss = F.cross_entropy(x, number, weight, reduction=reduction, label_smoothing=smoothing)
        other = F.nll_loss(x, number, weight, reduction=reduction)
        (loss + other).backward()
        assert loss.shape == other.shape == ()
        seen.append([loss.detach(), other.detach(), x.grad])
    assert all(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in zip(*seen))


@pytest.mark.parametrize("function", [F.cross_entropy, F.nll_loss])
@pytest.mark.parametrize(("shape", "target"), [((3,), [0, 1]), ((3,), []), ((1, 3), 1), ((2, 3), [1])])
def test_counts_of_class_numbers_that_do_not_fit(function, shape, target):
    with pytest.raises(ValueError, match="size"):
        function(torch.ones(shape), torch.tensor(target).long())
