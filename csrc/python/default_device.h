#ifndef AMP_DEFAULT_DEVICE_H
#define AMP_DEFAULT_DEVICE_H
#include "state.h"

int default_device_init(PyObject *module);
int default_device_or(int fallback); /* of factories that are given none, in this thread; fallback: none was chosen */
/* `with device(...)`: 0, or -1 with an exception. */
int default_device_enter(int device);
int default_device_exit(void);

#endif
