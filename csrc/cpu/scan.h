/* Scans that carry more than a sum or a product. */
#ifndef AMP_SCAN_H
#define AMP_SCAN_H
#include "../core/backend.h"

Status amp_scan_other(const Call *call); /* cummax cummin logcumsumexp */

#endif
