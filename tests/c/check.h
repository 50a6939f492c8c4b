/* What every driver counts and prints failures with; drivers with threads share the count. */
#ifndef AMP_CHECK_H
#define AMP_CHECK_H
#include <stdatomic.h>
#include <stdio.h>

static atomic_int failures;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            failures++; \
        } \
    } while (0)

#endif
