/* SPDX-License-Identifier: Apache-2.0 */
/* A list of findings: plain rows, each cut to its size between characters and on one line, whatever names it
 * holds. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/context.h"
#include "checkpoint/verify.h"
#include <stdio.h>
#include <string.h>

void bwi_findings_fini(struct bwi_findings *f) {
    if (f == NULL) return;
    bwi_free(f->list);
    *f = (struct bwi_findings){0};
}

/* Copies what fits, not half a character, and nothing that begins a second line. */
static void put(char *to, size_t to_bytes, const char *text) {
    struct bw_error clean = BW_ERROR_INIT;
    if (text == NULL) return;
    (void)bwi_error_set(&clean, BW_E_INTERNAL, "%s", text);
    size_t n = strlen(clean.message);
    if (n >= to_bytes) {
        n = to_bytes - 1;
        while (n > 0 && ((uint8_t)clean.message[n] & 0xc0) == 0x80) n--;
    }
    memcpy(to, clean.message, n);
    to[n] = '\0';
}

static struct bw_finding *add(struct bwi_findings *f) {
    if (f->failed || !bwi_vec_reserve((void **)&f->list, &f->cap, f->count + 1, sizeof *f->list)) {
        f->failed = true;
        return NULL;
    }
    struct bw_finding *x = &f->list[f->count++];
    *x = (struct bw_finding){0};
    return x;
}

void bwi_findings_add(struct bwi_findings *f, uint32_t severity, int status, const char *tier, const struct bwi_id *id,
                      const char *object, const char *tensor, const char *fmt, ...) {
    char text[2048];
    struct bw_finding *x = add(f);
    if (x == NULL) return;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    x->severity = severity;
    x->status = status;
    put(x->tier, sizeof x->tier, tier);
    put(x->object, sizeof x->object, object);
    put(x->tensor, sizeof x->tensor, tensor);
    put(x->message, sizeof x->message, text);
    if (id == NULL) return;
    char id_text[BWI_ID_TEXT_BYTES];
    bwi_id_text(id, id_text);
    put(x->id, sizeof x->id, id_text);
}
