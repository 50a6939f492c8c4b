"""B039: one file holds all that the next steps depend on, the numerics included."""

import pytest

import ampnative as torch
from ampnative import amp
from ampnative.serialization import load_checkpoint, save_checkpoint


def trained(steps, resume_at=None, path=None):
    """The parameters after so many steps with dropout, a scaler and a scheduler; with `resume_at` saved and loaded there."""

    def make():
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        return model, optimizer, amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3), torch.optim.lr_scheduler.StepLR(optimizer, 4)

    model, optimizer, scaler, scheduler = make()
    for step in range(steps):
        if step == resume_at:
            save_checkpoint(path, model=model, optimizer=optimizer, scaler=scaler, scheduler=scheduler)
            model, optimizer, scaler, scheduler = make()
            torch.manual_seed(99)
            torch.set_autocast_dtype("cpu", torch.bfloat16)
            torch.backends.mkldnn.matmul.fp32_precision = "ieee"
            load_checkpoint(path, model=model, optimizer=optimizer, scaler=scaler, scheduler=scheduler)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.get_autocast_dtype("cpu")):
            loss = (model(torch.randn(16, 4)) ** 2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
    return [p.detach().clone() for p in model.parameters()], scaler.get_scale()


@pytest.fixture
def numerics():
    before = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.backends.mkldnn.matmul.fp32_precision = "tf32"
    yield
    torch.set_autocast_dtype("cpu", before)
    torch.backends._reset()


def test_b039_twenty_steps_straight_and_resumed_are_the_same_bits(numerics, tmp_path):
    straight, scale = trained(20)
    resumed, resumed_scale = trained(20, 10, tmp_path / "checkpoint")
    assert scale == resumed_scale and all(torch.equal(a, b) for a, b in zip(straight, resumed, strict=True))
    assert torch.get_autocast_dtype("cpu") is torch.float16 and torch.backends.mkldnn.matmul.fp32_precision == "tf32"


def test_the_numerics_can_stay_as_they_are(numerics, tmp_path):
    save_checkpoint(tmp_path / "checkpoint")
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    load_checkpoint(tmp_path / "checkpoint", numerics=False)
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16
    load_checkpoint(tmp_path / "checkpoint")
    assert torch.get_autocast_dtype("cpu") is torch.float16


def test_settings_of_another_version_are_told(numerics, tmp_path):
    save_checkpoint(tmp_path / "checkpoint")
    data = torch.load(tmp_path / "checkpoint")
    torch.save({**data, "numerics": {**data["numerics"], "precision": 2**63 - 1}}, tmp_path / "checkpoint")
    with pytest.warns(UserWarning, match="another version"):
        load_checkpoint(tmp_path / "checkpoint")
