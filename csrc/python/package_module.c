/* The type of the package's modules that have a __getattr__. The interpreter keeps no shortcut to the attributes of such a module, and its
 * general way asks the type before the module's dict; that is twice the time of what is found in the dict at once. */
#include "package_module.h"

/* What a module's type defines for data (__dict__, __class__, ...) is never a name in a module's dict with another meaning. */
static PyObject *attribute(PyObject *self, PyObject *name) {
    PyObject *dict = PyModule_GetDict(self); /* borrowed */
    PyObject *value = dict ? PyDict_GetItemWithError(dict, name) : NULL;
    if (value) {
        return Py_NewRef(value);
    }
    return PyErr_Occurred() ? NULL : PyModule_Type.tp_getattro(self, name);
}

int package_module_init(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_getattro, attribute},
        {Py_tp_doc, "A module whose missing names are answered by its __getattr__; set as __class__."},
        {0, NULL},
    };
    static PyType_Spec spec = {.name = "ampnative._C.PackageModule", .flags = Py_TPFLAGS_DEFAULT, .slots = slots};
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, (PyObject *)&PyModule_Type);
    int failed = type ? PyModule_AddObjectRef(module, "PackageModule", type) : -1;
    Py_XDECREF(type);
    return failed;
}
