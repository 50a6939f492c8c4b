"""Saving and loading: kinds of dicts and bytes, and errors of map_location."""

import collections
import io
import zipfile

import pytest

import ampnative as torch
from ampnative.serialization import load, save


def there_and_back(obj):
    file = io.BytesIO()
    save(obj, file)
    file.seek(0)
    return load(file)


@pytest.mark.parametrize(
    "value",
    [
        collections.Counter({2: 1, 4: 3, "x": -1}),
        collections.defaultdict(list, a=[1]),
        collections.defaultdict(None, b=2),
        collections.defaultdict(int),
        bytearray(b"\0\xff"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_counters_defaultdicts_and_bytearrays_come_back_as_such(value):
    back = there_and_back({"in": [value]})["in"][0]
    assert type(back) is type(value) and back == value
    assert getattr(back, "default_factory", None) is getattr(value, "default_factory", None)


def test_a_counter_of_tensors_keeps_them():
    back = there_and_back(collections.Counter({"a": torch.ones(2)}))
    assert type(back) is collections.Counter and torch.equal(back["a"], torch.ones(2))


@pytest.mark.parametrize("node", ['["eval",[]]', '["Counter",[]]', '[3,[]]', '"list"', '["list"]'])
def test_a_factory_that_is_not_one_of_the_named_is_refused(node):
    file = io.BytesIO()
    save(collections.defaultdict(list), file)
    with zipfile.ZipFile(file) as archive:
        text = archive.read("index.json").decode()
    assert '["list",[]]' in text
    with zipfile.ZipFile(changed := io.BytesIO(), "w") as archive:
        archive.writestr(zipfile.ZipInfo("index.json"), text.replace('["list",[]]', node))
    changed.seek(0)
    with pytest.raises(RuntimeError, match="bad entry"):
        load(changed)


@pytest.mark.parametrize("where", [3.5, 7, b"cpu", [1], (), {"cpu": None}, {"cpu": 3}], ids=repr)
def test_a_map_location_of_another_type(where):
    save(torch.ones(2), file := io.BytesIO())
    file.seek(0)
    with pytest.raises(TypeError, match="map_location"):
        load(file, where)


def test_what_a_map_location_raises_is_not_taken_for_a_fault_of_the_file():
    def refuse(tensor, location):
        raise ValueError("not here")

    save([torch.ones(2)], file := io.BytesIO())
    file.seek(0)
    with pytest.raises(ValueError, match="^not here$"):
        load(file, refuse)
