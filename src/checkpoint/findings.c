/* SPDX-License-Identifier: Apache-2.0 */
/* A list of findings: plain rows, each on one line and cut to its size, whatever names it holds. Names are cut between
 * characters, messages between words, with a sign that there was more. */
#include "base/error.h"
#include "base/text.h"
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
    const size_t n = bwi_text_fit(clean.message, to_bytes - 1);
    memcpy(to, clean.message, n);
    to[n] = '\0';
}

void bwi_finding_about(const char *object, const char *found, char ret[BWI_FINDING_TEXT_BYTES]) {
    char name[sizeof(((struct bw_finding *)0)->object) + 3];
    char text[BW_ERROR_MESSAGE_BYTES];
    const char *at = bwi_format(name, sizeof name, " \"%s\"", object) ? strstr(found, name) : NULL;
    const size_t before = at == NULL ? strlen(found) : (size_t)(at - found);
    const char *rest = at == NULL ? "" : at + strlen(name);
    if (*rest == ':' && before > 0 && found[before - 1] == ':') rest++; /* "where: NAME: what" */
    (void)bwi_format(text, sizeof text, "%.*s%s", (int)before, found, rest);
    bwi_text_words(ret, BWI_FINDING_TEXT_BYTES, text);
}

void bwi_finding_not_mended(const char *object, const char *found, const char *why, char ret[BWI_FINDING_TEXT_BYTES]) {
    static const char between[] = "; not to be mended: ";
    char text[BWI_FINDING_TEXT_BYTES];
    const size_t room = BWI_FINDING_TEXT_BYTES - (sizeof between - 1);
    const size_t why_bytes = strlen(why) < room / 2 ? strlen(why) : room / 2;
    bwi_finding_about(object, found, text);
    bwi_text_words(ret, room - why_bytes, text);
    const size_t n = strlen(ret);
    memcpy(ret + n, between, sizeof between);
    bwi_text_words(ret + n + sizeof between - 1, room - n, why);
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
    struct bw_error clean = BW_ERROR_INIT;
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
    (void)bwi_error_set(&clean, BW_E_INTERNAL, "%s", text);
    bwi_text_words(x->message, sizeof x->message, clean.message);
    if (id == NULL) return;
    char id_text[BWI_ID_TEXT_BYTES];
    bwi_id_text(id, id_text);
    put(x->id, sizeof x->id, id_text);
}
