/* The slots arrange, nonzero and scan. */
#ifndef AMP_ARRANGE_H
#define AMP_ARRANGE_H
#include "../core/backend.h"

Status amp_arrange(const Call *call);
Status amp_nonzero(const Call *call);
Status amp_scan(const Call *call);

#endif
