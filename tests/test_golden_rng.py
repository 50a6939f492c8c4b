"""rng.json: what a seed gives, call by call; every call goes on in the stream where the one before ended."""

from golden_tools import array_from_bits, assert_bits, bits, dtype_name, missing, not_there, records, torch

# Layers and samplers that do not exist yet: their absence is reported; everything else must exist.
LATER = {"embedding_init": "nn.Embedding", "multinomial": "multinomial"}


def draw(spec):
    """The tensor that one recorded call gives."""
    name, args = spec["call"], dict(spec.get("args", {}))
    if "dtype" in args:
        args["dtype"] = getattr(torch, args["dtype"])
    if name in ("rand", "randn"):
        return getattr(torch, name)(*args.pop("size"), **args)
    if name == "randint":
        return torch.randint(args["low"], args["high"], tuple(args["size"]), dtype=args.get("dtype", torch.int64))
    if name == "randperm":
        return torch.randperm(args["n"])
    if name == "normal_":
        return torch.empty(args["size"], dtype=args["dtype"]).normal_(args["mean"], args["std"])
    if name == "uniform_":
        return torch.empty(args["size"], dtype=args["dtype"]).uniform_(args["low"], args["high"])
    if name == "linear_init":
        return _parameters(torch.nn.Linear(args["in"], args["out"]))
    if name == "conv2d_init":
        return _parameters(torch.nn.Conv2d(args["in"], args["out"], args["kernel"]))
    if name == "embedding_init":
        return torch.nn.Embedding(args["num"], args["dim"]).weight
    if name == "init":
        return getattr(torch.nn.init, args["fn"])(torch.empty(args["size"]), **args.get("kw", {}))
    if name == "dropout":
        return torch.nn.functional.dropout(torch.ones(args["size"]), args["p"], True)
    if name == "bernoulli":
        return torch.bernoulli(torch.full(tuple(args["size"]), args["p"]))
    if name == "multinomial":
        return torch.multinomial(torch.tensor(args["weights"]), args["num"], replacement=args["replacement"])
    if name == "exponential_":
        return torch.empty(args["size"], dtype=args["dtype"]).exponential_(args["lambd"])
    raise ValueError(f"unknown call {name!r}")


def _parameters(layer):
    return torch.cat([layer.weight.reshape(-1), layer.bias])


def ulp_distance(a: int, b: int, width: int) -> int:
    """Representable values between two patterns of one width."""
    top = 1 << (width - 1)

    def ordered(v):
        return top - v if v & top else v

    return abs(ordered(a) - ordered(b))


def assert_match(got, spec, where):
    want, dtype, match = spec["bits"], spec["dtype"], spec["match"]
    if match == "exact":
        assert_bits(got, want, dtype, where)
        return
    a, b = array_from_bits(got, dtype), array_from_bits(want, dtype)
    for i, (x, y) in enumerate(zip(got, want, strict=True)):
        near = ulp_distance(x, y, 8 * a.itemsize) <= match["ulp"] or abs(float(a[i]) - float(b[i])) <= match["atol"]
        assert near, f"{where}[{i}] ({dtype}): got {float(a[i])!r}, expected {float(b[i])!r} within {match}"


@records("rng")
def test_stream(record):
    absent = missing(*{LATER[c["call"]] for c in record["calls"] if c["call"] in LATER})
    if absent:
        not_there(", ".join(absent))
    torch.manual_seed(record["seed"])
    for number, spec in enumerate(record["calls"]):
        where = f"call {number} {spec['call']} {spec.get('args')}"
        out = draw(spec)
        assert (dtype_name(out.dtype), list(out.shape)) == (spec["dtype"], spec["shape"]), where
        assert_match(bits(out), spec, where)
