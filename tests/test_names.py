"""Every public name of PyTorch is there, or asking for it says what to do instead."""

import importlib
import json
from pathlib import Path

import pytest

import ampnative
from ampnative._features import AbsentAttribute, AbsentFeatureError, cure_of
from ampnative._features_names import NAMES, TENSOR_FAMILIES

RECORDED = {
    module: names.split()
    for module, names in json.loads((Path(__file__).parent / "pytorch_names.json").read_text(encoding="utf-8"))["names"].items()
}


@pytest.mark.parametrize("path", RECORDED)
def test_names_are_there_or_say_what_to_do_instead(path):
    place = ampnative.ones(2, 2) if path == "Tensor" else importlib.import_module(f"ampnative.{path}" if path else "ampnative")
    silent = []
    for name in RECORDED[path]:
        try:
            getattr(place, name)
        except NotImplementedError as error:  # an absent op says it in its own words
            assert isinstance(error, AttributeError) and (": " in str(error) or "Its autocast policy" in str(error)), name
        except AttributeError:
            silent.append(name)
        except (RuntimeError, TypeError):  # there, and not for this tensor
            pass
    assert not silent, f"neither there nor explained: {' '.join(silent)}"


@pytest.mark.parametrize("path", [p for p in NAMES if p != "Tensor"])
def test_absent_names_refuse_attributes_and_imports(path):
    place = f"ampnative.{path}" if path else "ampnative"
    module = importlib.import_module(place)
    for patterns, cure in NAMES[path]:
        name = next((n for n in RECORDED.get(path, ()) if cure_of(path, n) == cure and not hasattr(module, n)), None)
        if name is None:
            continue
        assert patterns and cure
        with pytest.raises(AbsentFeatureError) as raised:
            getattr(module, name)
        if path != "backends":  # a module with properties
            assert str(raised.value) == f"{place}.{name} is not available: {cure}"
            with pytest.raises(ImportError, match=f"{name} is not available: "):
                exec(f"from {place} import {name}")
    with pytest.raises(AttributeError) as raised:
        module.no_such_name  # noqa: B018
    assert not isinstance(raised.value, AbsentFeatureError)


def test_absent_attributes_of_tensors():
    x = ampnative.ones(2)
    absent = [name for name, member in vars(ampnative.Tensor).items() if isinstance(member, AbsentAttribute)]
    assert "to_sparse_csr" in absent and "resize_" in absent and set(absent) <= set(RECORDED["Tensor"])
    for name in absent:
        assert not hasattr(x, name)
        with pytest.raises(NotImplementedError, match=rf"Tensor\.{name} is not available: "):
            getattr(x, name)
    assert {word for patterns, _ in NAMES["Tensor"] for word in patterns.split() if "*" in word} == set(TENSOR_FAMILIES)


def test_what_there_is_no_room_for_says_what_to_do():
    with pytest.raises(ImportError, match=r"optim\.SparseAdam is not available: gradients are dense"):
        from ampnative.optim import SparseAdam  # noqa: F401


def test_functions_of_normal_areas_and_entropies():
    special, x = ampnative.special, ampnative.tensor([-1.0, 0.0, 0.5, 2.0, float("nan")])
    for got, wanted in [
        (special.entr(x), [-float("inf"), 0, 0.346574, -1.386294, float("nan")]),
        (special.ndtr(x), [0.158655, 0.5, 0.691462, 0.977250, float("nan")]),
        (special.ndtri(ampnative.tensor([0, 0.3, 0.5, 1, 2])), [-float("inf"), -0.524401, 0, float("inf"), float("nan")]),
        (special.xlog1py(x, 3.0), [-1.386294, 0, 0.693147, 2.772589, float("nan")]),
        (special.xlog1py(2.0, x), [-float("inf"), 0, 0.810930, 2.197225, float("nan")]),
        (special.xlog1py(ampnative.zeros(2), ampnative.tensor([-1.0, float("nan")])), [0, float("nan")]),
    ]:
        assert got.tolist() == pytest.approx(wanted, rel=1e-5, nan_ok=True)
