"""train.json: short training runs: losses, weights within the record's tolerance, decisions exactly; then resuming."""

import copy

import numpy as np
from golden_tools import (
    array,
    array_from_bits,
    assert_close,
    bits,
    build,
    dtype_name,
    records,
    spec_of,
    tensor_from_bits,
    torch,
)

WEIGHTS = ("w1", "b1", "w2", "b2")


class Model:
    """Two linear layers, parameters and data from a recorded setup."""

    def __init__(self, setup):
        self.setup = setup
        self.params = [build(setup[k]).requires_grad_() for k in WEIGHTS]
        self.x, self.y = build(setup["x"]), build(setup["y"])

    def __call__(self, x):
        w1, b1, w2, b2 = self.params
        hidden = torch.nn.functional.linear(x, w1, b1)
        hidden = torch.relu(hidden) if self.setup["activation"] == "relu" else torch.tanh(hidden)
        return torch.nn.functional.linear(hidden, w2, b2)

    def loss(self, out, y):
        return torch.nn.functional.mse_loss(out, y) if self.setup["task"] == "mse" else torch.nn.functional.cross_entropy(out, y)


class Run:
    """Model, optimizer and scaler of one configuration; steps on demand."""

    def __init__(self, setup, config):
        self.config = config
        self.model = Model(setup)
        kwargs = dict(config["optimizer"])
        self.optimizer = getattr(torch.optim, kwargs.pop("name"))(self.model.params, **kwargs)
        self.scaler = (
            torch.amp.GradScaler(device="cpu", **config["scaler"])
            if config["scaler"]
            else torch.amp.GradScaler(device="cpu", enabled=False)
        )

    def save(self):
        return {
            "weights": [p.detach().clone() for p in self.model.params],
            "optimizer": copy.deepcopy(self.optimizer.state_dict()),
            "scaler": self.scaler.state_dict(),
        }

    def load(self, saved):
        with torch.no_grad():
            for p, value in zip(self.model.params, saved["weights"], strict=True):
                p.copy_(value)
        self.optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
        self.scaler.load_state_dict(saved["scaler"])

    def step(self, step):
        """One optimizer step; the row that the recorder writes, without gradients_finite."""
        config, model, scaler = self.config, self.model, self.scaler
        scale, losses, norm = scaler.get_scale(), [], None
        for part in range(config["accumulate"]):
            index = (step * config["accumulate"] + part) % model.x.shape[0]
            with torch.autocast(
                "cpu", dtype=getattr(torch, config["autocast"] or "bfloat16"), enabled=config["autocast"] is not None
            ):
                out = model(model.x[index])
                loss = model.loss(out, model.y[index]) / config["accumulate"]
            scaler.scale(loss).backward()
            losses.append(bits(loss)[0])
        if config["max_norm"] is not None:
            scaler.unscale_(self.optimizer)
            norm = torch.nn.utils.clip_grad_norm_(model.params, config["max_norm"])
        before = [array(p) for p in model.params]
        finite = all(np.isfinite(array(p.grad)).all() for p in model.params)
        scaler.step(self.optimizer)
        moved = any(not np.array_equal(a, array(p), equal_nan=True) for a, p in zip(before, model.params, strict=True))
        scaler.update()
        self.optimizer.zero_grad()
        return {
            "loss": losses,
            "scale": float(scale).hex(),
            "new_scale": float(scaler.get_scale()).hex(),
            "tracker": scaler._get_growth_tracker(),
            "skipped": not moved,
            "gradients_finite": finite,
            "out_dtype": dtype_name(out.dtype),
            "loss_dtype": dtype_name(loss.dtype),
            "norm": None if norm is None else {"dtype": dtype_name(norm.dtype), "bits": bits(norm)[0]},
        }

    def steps(self, first, last):
        return [self.step(k) for k in range(first, last)]

    def weight_bits(self):
        return [bits(p) for p in self.model.params]


def check_rows(rows, wanted, record, what):
    tolerance = record["tolerance"]
    for row, want in zip(rows, wanted, strict=True):
        where = f"{what} step {record['steps'].index(want)}"
        decisions = [k for k in want if k not in ("loss", "norm", "gradients_finite")]
        assert {k: row[k] for k in decisions} == {k: want[k] for k in decisions}, where
        if record["config"]["scaler"]:
            assert row["gradients_finite"] == want["gradients_finite"], where
        assert_close(row["loss"], want["loss"], want["loss_dtype"], tolerance["loss_rtol"], 1e-7, f"{where}: loss")
        assert (row["norm"] is None) == (want["norm"] is None), where
        if want["norm"]:
            assert row["norm"]["dtype"] == want["norm"]["dtype"], where
            # a norm has no tolerance of its own in the record; an element of a gradient is as uncertain as a loss
            assert_close(
                [row["norm"]["bits"]],
                [want["norm"]["bits"]],
                want["norm"]["dtype"],
                max(1e-4, 10 * tolerance["loss_rtol"]),
                0.0,
                f"{where}: norm",
            )


def check_weights(run, record, what):
    for name, got, want in zip(WEIGHTS, run.weight_bits(), record["final_weights"], strict=True):
        assert_close(got, want, "float32", 0.0, record["tolerance"]["weight_atol"], f"{what}: {name}")


def optimizer_state(state):
    """The state dict's per-parameter part as the recorder writes it."""
    return [{k: spec_of(v) if isinstance(v, torch.Tensor) else v for k, v in state["state"].get(i, {}).items()} for i in range(4)]


def outline(state):
    """Names, dtypes and shapes of a state; the step counters with their value."""

    def one(key, v):
        if not (isinstance(v, dict) and "tensor" in v):
            return type(v).__name__ if v is not None else None
        return [v["tensor"], v["shape"], array_from_bits(v["bits"], v["tensor"]).tolist() if key == "step" else None]

    return [{k: one(k, v) for k, v in entry.items()} for entry in state]


def from_record(record, run):
    """The recorded saved state as the dicts that load_state_dict takes."""
    saved, setup = record["saved"], run.model.setup
    weights = [tensor_from_bits(b, "float32", setup[k]["shape"]) for k, b in zip(WEIGHTS, saved["weights"], strict=True)]
    state = {
        i: {k: build(v) if isinstance(v, dict) else v for k, v in entry.items()}
        for i, entry in enumerate(saved["optimizer"])
        if entry
    }
    return {"weights": weights, "optimizer": dict(run.optimizer.state_dict(), state=state), "scaler": saved["scaler"]}


@records("train")
def test_run(record):
    setup, config = record.tables["setups"][record["setup"]], record["config"]
    run = Run(setup, config)
    rows = run.steps(0, config["save_at"])
    saved = run.save()
    rows += run.steps(config["save_at"], config["steps"])
    check_rows(rows, record["steps"], record, "whole run")
    check_weights(run, record, "whole run")
    assert saved["scaler"] == record["saved"]["scaler"]
    assert outline(optimizer_state(saved["optimizer"])) == outline(record["saved"]["optimizer"])

    resumed = Run(setup, config)
    resumed.load(saved)
    assert resumed.steps(config["save_at"], config["steps"]) == rows[config["save_at"] :], "resuming is not bit-identical"
    assert resumed.weight_bits() == run.weight_bits(), "resuming is not bit-identical"

    taken_over = Run(setup, config)
    taken_over.load(from_record(record, taken_over))
    check_rows(
        taken_over.steps(record["saved"]["step"], config["steps"]),
        record["steps"][record["saved"]["step"] :],
        record,
        "from the recorded state",
    )
    check_weights(taken_over, record, "from the recorded state")
