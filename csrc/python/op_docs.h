/* Docstrings of the op entries. */
#ifndef AMP_OP_DOCS_H
#define AMP_OP_DOCS_H
#include "run_op.h"

typedef enum DocKind { DOC_FUNCTION, DOC_METHOD, DOC_INPLACE } DocKind;

/* The docstring of a name: its n overloads and what they do. A PyMem block, or NULL without memory. */
char *op_doc(const OpRow *const *rows, int n, DocKind kind);
/* What ops_doc.def says about a public name, or NULL. */
const char *op_doc_text(const char *name);

#endif
