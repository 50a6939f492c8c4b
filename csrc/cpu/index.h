/* The indexing slots. */
#ifndef AMP_INDEX_H
#define AMP_INDEX_H
#include "../core/backend.h"

Status amp_index(const Call *call);
Status amp_index_put(const Call *call);
Status amp_gather(const Call *call);

#endif
