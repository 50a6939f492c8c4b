/* Python's operators on tensors: each is an op row, with the operands as given. */
#include <string.h>

#include "args.h"
#include "tensor_methods.h"

/* Something that may stand beside a tensor in an expression. */
static bool operand_like(PyObject *o) {
    return tensor_check_exact(o) || PyFloat_Check(o) || PyLong_Check(o) || tensor_check(o) || PyComplex_Check(o) ||
           array_check(o) || array_scalar_check(o);
}

/* Expressions, and only they, take arrays. New reference; NULL with an exception. */
static PyObject *as_operand(PyObject *o) {
    const bool usual = PyFloat_Check(o) || PyLong_Check(o) || tensor_check_exact(o);
    return !usual && array_check(o) ? (PyObject *)tensor_from_array(o) : Py_NewRef(o);
}

/* Operands of which at least one is no tensor. */
static PyObject *parsed(OpId op, PyObject *self, PyObject *const *args, int n, bool in_place) {
    ArgFrame frame;
    Arg arg[MAX_ARGS];
    args_begin(&frame);
    int ok = args_parse(&amp_rows[op], self, args, n, NULL, &frame, arg, true);
    PyObject *result = ok > 0 ? run_op(&amp_rows[op], arg, in_place) : NULL;
    args_done(&frame);
    return result;
}

static PyObject *binary(OpId op, PyObject *a, PyObject *b) {
    if (!operand_like(a) || !operand_like(b)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    bool tensors = tensor_check_exact(a) && tensor_check_exact(b);
    if (!tensors && (op == OP_add || op == OP_mul) && tensor_check(b) &&
        !tensor_check(a)) { /* 2 * x is x * 2: the tensor's own op */
        PyObject *number = a;
        a = b;
        b = number;
    }
    if (tensors || (tensor_check(a) && tensor_check(b))) { /* nothing to convert */
        const OpRow *row = &amp_rows[op];
        Arg arg[MAX_ARGS];
        arg_put(&arg[0], (Tensor *)a);
        arg_put(&arg[1], (Tensor *)b);
        for (int i = 2; i < row->nparams; i++) {
            arg[i] = row->param[i].fallback;
        }
        return run_op(row, arg, false);
    }
    PyObject *operands[2] = {as_operand(a), as_operand(b)};
    PyObject *result = operands[0] && operands[1] ? parsed(op, NULL, operands, 2, false) : NULL;
    Py_XDECREF(operands[0]);
    Py_XDECREF(operands[1]);
    return result;
}

static PyObject *inplace(OpId op, PyObject *a, PyObject *b) {
    if (!operand_like(b)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    PyObject *other = as_operand(b);
    PyObject *result = other ? parsed(op, a, &other, 1, true) : NULL;
    Py_XDECREF(other);
    return result;
}

#define BINARY(name, op) \
    static PyObject *nb_##name(PyObject *a, PyObject *b) { return binary(op, a, b); }
#define INPLACE(name, op) \
    static PyObject *nb_inplace_##name(PyObject *a, PyObject *b) { return inplace(op, a, b); }
BINARY(add, OP_add)
BINARY(subtract, OP_sub)
BINARY(multiply, OP_mul)
BINARY(floor_divide, OP_floor_divide)
BINARY(remainder, OP_remainder)

static bool is_number(PyObject *o) { return PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o); }

static PyObject *nb_matmul(PyObject *a, PyObject *b) {
    bool tensors = tensor_check_exact(a) && tensor_check_exact(b);
    if (!tensors && (is_number(a) || is_number(b))) { /* no product of matrices: Python says so */
        Py_RETURN_NOTIMPLEMENTED;
    }
    return binary(OP_matmul, a, b);
}

BINARY(and, OP_bitwise_and)
BINARY(or, OP_bitwise_or)
BINARY(xor, OP_bitwise_xor)
BINARY(lshift, OP_bitwise_left_shift)
BINARY(rshift, OP_bitwise_right_shift)
INPLACE(add, OP_add)
INPLACE(subtract, OP_sub)
INPLACE(multiply, OP_mul)
INPLACE(true_divide, OP_div)
INPLACE(floor_divide, OP_floor_divide)
INPLACE(remainder, OP_remainder)
INPLACE(and, OP_bitwise_and)
INPLACE(or, OP_bitwise_or)
INPLACE(xor, OP_bitwise_xor)
INPLACE(lshift, OP_bitwise_left_shift)
INPLACE(rshift, OP_bitwise_right_shift)
#undef BINARY
#undef INPLACE

/* number / tensor is reciprocal, then a product: PyTorch's two steps, which decide the dtype under autocast. */
static PyObject *nb_true_divide(PyObject *a, PyObject *b) {
    if (tensor_check(a) || !tensor_check(b) || array_check(a) || !operand_like(a)) {
        return binary(OP_div, a, b);
    }
    PyObject *inverse = (PyObject *)call_unary(OP_reciprocal, (Tensor *)b);
    PyObject *result = inverse ? binary(OP_mul, inverse, a) : NULL;
    Py_XDECREF(inverse);
    return result;
}

static PyObject *nb_power(PyObject *a, PyObject *b, PyObject *modulo) {
    if (modulo != Py_None) {
        PyErr_SetString(PyExc_TypeError, "pow() with a modulus is not defined for tensors");
        return NULL;
    }
    return binary(OP_pow, a, b);
}

static PyObject *nb_inplace_power(PyObject *a, PyObject *b, PyObject *Py_UNUSED(modulo)) { return inplace(OP_pow, a, b); }

static PyObject *nb_negative(PyObject *a) { return (PyObject *)call_unary(OP_neg, (Tensor *)a); }

static PyObject *nb_positive(PyObject *a) { return Py_NewRef(a); }

static PyObject *nb_absolute(PyObject *a) { return (PyObject *)call_unary(OP_abs, (Tensor *)a); }

static PyObject *nb_invert(PyObject *a) {
    Tensor *t = (Tensor *)a;
    if (!amp_is_integral(t->v.dtype)) {
        PyErr_Format(PyExc_TypeError, "~ (operator.invert) is only implemented on integer and Boolean-type tensors, not %s",
                     amp_dtype_info[t->v.dtype].name);
        return NULL;
    }
    return (PyObject *)call_unary(OP_bitwise_not, t);
}

static PyObject *richcompare(PyObject *a, PyObject *b, int how) {
    static const OpId ops[] = {
        [Py_LT] = OP_lt, [Py_LE] = OP_le, [Py_EQ] = OP_eq, [Py_NE] = OP_ne, [Py_GT] = OP_gt, [Py_GE] = OP_ge};
    return binary(ops[how], a, b);
}

int operators_add_slots(PyType_Slot *slots, int n) {
#define SLOT(name) slots[n++] = (PyType_Slot){Py_nb_##name, (void *)nb_##name};
    SLOT(add)
    SLOT(subtract)
    SLOT(multiply)
    SLOT(true_divide)
    SLOT(floor_divide)
    SLOT(remainder)
    slots[n++] = (PyType_Slot){Py_nb_matrix_multiply, (void *)nb_matmul};
    SLOT(and)
    SLOT(or)
    SLOT(xor)
    SLOT(lshift)
    SLOT(rshift)
    SLOT(inplace_add)
    SLOT(inplace_subtract)
    SLOT(inplace_multiply)
    SLOT(inplace_true_divide)
    SLOT(inplace_floor_divide)
    SLOT(inplace_remainder)
    SLOT(inplace_and)
    SLOT(inplace_or)
    SLOT(inplace_xor)
    SLOT(inplace_lshift)
    SLOT(inplace_rshift)
    SLOT(power)
    SLOT(inplace_power)
    SLOT(negative)
    SLOT(positive)
    SLOT(absolute)
    SLOT(invert)
#undef SLOT
    slots[n++] = (PyType_Slot){Py_tp_richcompare, (void *)richcompare};
    return n;
}
