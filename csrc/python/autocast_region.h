/* Autocast as Python and the driver see it. */
#ifndef AMP_AUTOCAST_REGION_H
#define AMP_AUTOCAST_REGION_H
#include "../core/autocast.h"
#include "../core/policy.h"
#include "run_op.h"

int autocast_init(PyObject *module);
/* Casts made for one call; strong. */
typedef struct AutocastKeep {
    Tensor **t;    /* few, or a heap block */
    Tensor **list; /* copy of the op's tensor list with the casts in place of the originals (borrowed), or NULL */
    int n;
    Tensor *few[16];
} AutocastKeep;

/* Applies the row's policy to arg[] in place. `keep` starts with t = few and n = 0; autocast_keep_done is due after the op. 0 or -1. */
int autocast_apply(const OpRow *row, Arg *arg, AutocastKeep *keep);
void autocast_keep_done(AutocastKeep *keep);
/* The exception for a policy that refuses; dtypes as amp_policy_target got them. Returns -1. */
int autocast_raise(const char *name, const PolicyResult *r, const int8_t *dtypes);
/* The tensor in another dtype, a leaf weight through the cache; new reference. */
Tensor *autocast_cached_cast(Tensor *t, int dtype, AutocastDevice device);
/* Drops all kept casts of the process. */
void autocast_cache_clear(void);
int policy_table_init(PyObject *module);
/* Notes a leaf whose casts are kept, so that they are freed when the cache is emptied. */
void region_remember(Tensor *t);

#endif
