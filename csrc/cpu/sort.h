/* Order along one dimension: sorting, selection, binary search. */
#ifndef AMP_SORT_H
#define AMP_SORT_H
#include "../core/backend.h"

Status amp_sort(const Call *call);
Status amp_search(const Call *call);

#endif
