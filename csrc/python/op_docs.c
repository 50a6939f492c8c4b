/* Docstrings of the op entries: the signatures of the rows, and what ops_doc.def says about the name.
 *
 * A name with one row starts with a signature that inspect.signature understands, types taken off; a name with overloads lists them. */
#include "op_docs.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DOC = 4096 };

static const struct {
    const char *name, *text;
} docs[] = {
#define OP_DOC(name, text) {name, text},
#include "../core/ops_doc.def"
#undef OP_DOC
};

const char *op_doc_text(const char *name) {
    size_t low = 0, high = sizeof docs / sizeof *docs; /* in alphabetical order */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(docs[middle].name, name);
        if (order == 0) {
            return docs[middle].text;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* A text that is cut, not overrun. */
typedef struct Text {
    char at[MAX_DOC];
    size_t n;
} Text;

static void append(Text *t, const char *s, size_t n) {
    n = n < MAX_DOC - 1 - t->n ? n : MAX_DOC - 1 - t->n;
    memcpy(t->at + t->n, s, n);
    t->n += n;
    t->at[t->n] = 0;
}

static void append_string(Text *t, const char *s) { append(t, s, strlen(s)); }

/* The parameters of a signature, ", " between them: with types, or as Python would write them. A method's first one is self, and it
 * has no out=. */
static void append_parameters(Text *t, const char *signature, bool types, DocKind kind) {
    bool first = true, star = false, spread = false;
    for (const char *s = signature; *s;) {
        const char *end = strstr(s, ", ");
        size_t n = end ? (size_t)(end - s) : strlen(s);
        const char *space = memchr(s, ' ', n), *name = space ? space + 1 : s;
        size_t length = n - (size_t)(name - s);
        bool self = s == signature && kind != DOC_FUNCTION, out = !strncmp(name, "out=", 4) || !strncmp(name, "out ", 4);
        const bool spreads = !types && space && space > s &&
                             space[-1] == '*'; /* int[]* size: *size, and what follows goes by name */
        if (n == 1 && *s == '*') {
            star = !spread; /* written in front of what follows, if anything does */
        } else if (!(self && types) && !(out && kind != DOC_FUNCTION)) {
            append_string(t, first ? "" : ", ");
            append_string(t, star ? "*, " : "");
            append_string(t, spreads ? "*" : "");
            first = star = false;
            spread |= spreads;
            if (self) {
                append_string(t, "$self");
            } else {
                append(t, types ? s : name, types ? n : length);
            }
        }
        s += n + (end ? 2 : 0);
    }
}

char *op_doc(const OpRow *const *rows, int n, DocKind kind) {
    Text t = {.n = 0};
    const char *suffix = kind == DOC_INPLACE ? "_" : "", *text = op_doc_text(rows[0]->name);
    if (n == 1) {
        append_string(&t, rows[0]->name);
        append_string(&t, suffix);
        append_string(&t, "(");
        append_parameters(&t, rows[0]->signature, false, kind);
        append_string(&t, ")\n--\n\n");
    }
    for (int i = 0; i < n; i++) {
        append_string(&t, rows[i]->name);
        append_string(&t, suffix);
        append_string(&t, "(");
        append_parameters(&t, rows[i]->signature, true, kind);
        append_string(&t, i + 1 < n ? ")\n" : ")");
    }
    if (text) {
        append_string(&t, "\n\n");
        append_string(&t, text);
        append_string(&t, kind == DOC_INPLACE ? " In place: the result is written to self." : "");
    }
    char *copy = PyMem_Malloc(t.n + 1);
    if (copy) {
        memcpy(copy, t.at, t.n + 1);
    }
    return copy;
}
