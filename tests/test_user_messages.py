"""What users see: printed results, messages they look for, warnings that come once."""

import os
import subprocess
import sys

import pytest
from golden_tools import torch

NAME = torch.__name__


def test_named_results_print_a_line_per_field():
    x = torch.tensor([[3.0, 1.0], [2.0, 5.0]])
    assert repr(x.max(dim=1)) == str(x.max(dim=1)) == f"{NAME}.return_types.max(\nvalues=tensor([3., 5.]),\nindices=tensor([0, 1]))"
    assert repr(torch.linalg.slogdet(torch.eye(2))) == f"{NAME}.return_types.linalg_slogdet(\nsign=tensor(1.),\nlogabsdet=tensor(0.))"
    assert repr(x.aminmax()) == f"{NAME}.return_types.aminmax(\nmin=tensor(1.),\nmax=tensor(5.))"


@pytest.mark.parametrize("place", [[0, 5], torch.tensor([[0], [-3]]), torch.tensor([2])])
def test_an_index_out_of_bounds_is_named(place):
    x = torch.zeros(2, 3)
    wrong = 5 if isinstance(place, list) else -3 if place.dim() == 2 else 2
    for call in (lambda: x[place], lambda: x.__setitem__(place, 1.0)):
        with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for dimension 0 with size 2"):
            call()
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 1 with size 3"):
        x[[0, 1], [0, 7]]


@pytest.mark.parametrize("key", ["a", b"a", (0, "a")])
def test_texts_are_no_indices(key):
    with pytest.raises(TypeError, match="invalid data type"):
        torch.ones(2, 3)[key]


def test_shapes_that_do_not_fit_are_shown():
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x4\)"):
        torch.ones(2, 3) @ torch.ones(2, 4)
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(6x3 and 4x5\)"):
        torch.nn.Linear(4, 5)(torch.ones(2, 3, 3))
    with pytest.raises(RuntimeError, match="Only Tensors of floating point and complex dtype can require gradients"):
        torch.tensor([1], requires_grad=True)


def test_modules_before_init():
    class Net(torch.nn.Module):
        def __init__(self, value):
            self.a = value

    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__\(\) call"):
        Net(torch.nn.ReLU())
    with pytest.raises(AttributeError, match=r"cannot assign parameters before Module.__init__\(\) call"):
        Net(torch.nn.Parameter(torch.ones(1)))


def test_swa_rates_halfway():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
    scheduler = torch.optim.swa_utils.SWALR(optimizer, 0.05, anneal_epochs=2)
    optimizer.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.075]


def test_plateau_keeps_its_state_in_order():
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1))
    keys = list(scheduler.state_dict())
    assert keys[:3] == ["factor", "default_min_lr", "min_lrs"] and keys.index("_last_lr") < keys.index("mode_worse") < keys.index("mode")


def test_pinned_memory_without_an_accelerator():
    loader = torch.utils.data.DataLoader([1, 2], pin_memory=True)
    for _ in range(2):
        with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but no accelerator is found"):
            assert [int(b) for b in loader] == [1, 2]


def test_warnings_that_come_once():
    code = f"""
import warnings, {NAME} as torch
def run(call):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return [f"{{w.category.__name__}} {{str(w.message)[:55]}}" for w in seen]
for _ in range(2):
    print(run(lambda: torch.ones(2, 2).T), run(lambda: torch.ones(2, 3, 4).T), run(lambda: torch.ones(2).T), run(lambda: torch.ones(()).T))
    print(run(lambda: torch.meshgrid(torch.ones(2), indexing="xy")), run(lambda: torch.cartesian_prod(torch.ones(2), torch.ones(2))))
    print(run(lambda: torch.meshgrid(torch.ones(2))), run(lambda: torch.meshgrid([torch.ones(2)])))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ).stdout.split("\n")
    many = "UserWarning The use of `x.T` on tensors of dimension other than 2 t"
    assert out[0] == f"[] {[many]} [] ['UserWarning Tensor.T is deprecated on 0-D tensors{out[0].split('0-D tensors')[1]}"
    assert out[1] == "[] []" and out[2] == "['UserWarning torch.meshgrid: in an upcoming release, it will be requ'] []"
    assert out[3:6] == ["[] [] [] []", "[] []", "[] []"]


def test_cpu_capability():
    assert torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")


def test_requires_grad_of_integers():
    x = torch.tensor([1, 2])
    for call in (lambda: x.requires_grad_(), lambda: setattr(x, "requires_grad", True)):
        with pytest.raises(RuntimeError, match="^only Tensors of floating point"):
            call()
    for call in (
        lambda: torch.tensor([1], requires_grad=True),
        lambda: torch.nn.Parameter(x),
        lambda: torch.ones(1, dtype=torch.int8, requires_grad=True),
    ):
        with pytest.raises(RuntimeError, match="^Only Tensors of floating point and complex dtype can require gradients"):
            call()


def test_variables_of_old_tutorials():
    Variable = torch.autograd.Variable

    x = torch.ones(2)
    v = Variable(x, requires_grad=True)
    assert v.requires_grad and v.is_leaf and v is not x and not x.requires_grad and v.data_ptr() == x.data_ptr()
    (v * 2).sum().backward()
    assert v.grad.tolist() == [2.0, 2.0] and isinstance(x, Variable) and not Variable(x).requires_grad
    assert Variable(v * 2).is_leaf and not isinstance(3, Variable)


def test_meta_tensors_say_so():
    assert torch.ones(2, device="meta").is_meta and torch.nn.Linear(2, 2, device="meta").weight.is_meta and not torch.ones(2).is_meta


def test_complex_numbers_from_two_numbers():
    z = torch.complex(torch.tensor(1.0), torch.tensor(2.0))
    assert z.shape == () and z.item() == 1 + 2j and torch.complex(torch.ones(1), torch.tensor(2.0)).tolist() == [1 + 2j]


def test_parameter_dict_prints_types():
    d = torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.ones(1).half()), "b": torch.ones(2, 3), "c": 3})
    assert str(d).split("\n") == [
        "ParameterDict(",
        "    (a): Parameter containing: [torch.HalfTensor of size 1]",
        "    (b): Parameter containing: [torch.FloatTensor of size 2x3]",
        "    (c): Object of type: int",
        ")",
    ]


def test_gradients_of_nothing():
    x, other = torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match="The differentiated Tensor at index 1 appears to not have been used in the graph"):
        torch.autograd.grad((x * 2).sum(), [x, other])
    for nothing in ([], ()):
        with pytest.raises(RuntimeError, match=r"`inputs` argument to `grad\(\)` cannot be empty"):
            torch.autograd.grad((x * 2).sum(), nothing)
    with pytest.raises(RuntimeError, match="all inputs have to be Tensors or GradientEdges, but got int"):
        torch.autograd.grad((x * 2).sum(), [3])


def test_saving_into_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(RuntimeError, match="Parent directory .*nowhere does not exist"):
        torch.save({}, tmp_path / "nowhere" / "x.pt")
