/* The recurrent slot. */
#ifndef AMP_CPU_RECURRENT_H
#define AMP_CPU_RECURRENT_H
#include "../core/backend.h"

Status amp_recurrent(const Call *call);

#endif
