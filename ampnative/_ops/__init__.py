"""Bodies of ops that are short compositions of other ops, or that NumPy computes: one module per family, one function per
row of ``ops.def``, named like the row's id and called with one positional argument per parameter.

Policy, parsing, names and stubs come from the row. Inside a body autocast is off if the row has a policy on the device.
"""
