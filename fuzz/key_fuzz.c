/* SPDX-License-Identifier: Apache-2.0 */
/* Names that are found in a store: ids and keys. What parses is exactly what is made of its parts again.
 * Reaches src/format/id.c src/format/key.c */
#include "base/text.h"
#include "format/id.h"
#include "fuzz.h"

static struct bwi_key made_of(const struct bwi_key_parts *p) {
    const bool fan_out = strcmp(p->ff, "00") != 0;
    struct bwi_sha sha = {{0}};
    fuzz_require(bwi_hex_decode(p->hash, strlen(p->hash), &sha, strlen(p->hash) / 2));
    switch (p->kind) {
    case BWI_KEY_ENTRY: return bwi_key_entry(p->run, p->era, p->n);
    case BWI_KEY_INVENTORY: return bwi_key_inventory(p->run, p->launch, p->group);
    case BWI_KEY_REFUSAL: return bwi_key_refusal(p->run, p->launch);
    case BWI_KEY_LAYOUT: return bwi_key_layout(p->run, p->attempt, p->nonce, &sha);
    case BWI_KEY_SUMMARY: return bwi_key_summary(p->run, &p->id, p->group);
    case BWI_KEY_FAILED: return bwi_key_failed(p->run, &p->id, p->group);
    case BWI_KEY_DAMAGED: return bwi_key_damaged(p->run, &p->id, p->group);
    case BWI_KEY_MANIFEST: return bwi_key_manifest(p->run, &p->id, &sha);
    case BWI_KEY_INDEX: return bwi_key_index(p->run, &p->id, &sha);
    case BWI_KEY_PACK: return bwi_key_pack(p->run, fan_out, &p->id, p->group, (uint32_t)p->n, p->writer);
    case BWI_KEY_CONTENT: return bwi_key_content(p->run, fan_out, &p->id, p->group);
    case BWI_KEY_PLACEMENT: return bwi_key_placement(p->run, fan_out, &p->id, p->group, p->writer);
    }
    return (struct bwi_key){{0}};
}

void fuzz_one(uint8_t *data, size_t size) {
    struct bwi_id id;
    struct bwi_uuid uuid;
    (void)bwi_uuid_parse(bwi_span(data, size), &uuid);
    if (bwi_id_parse(bwi_span(data, size), &id)) {
        char text[BWI_ID_TEXT_BYTES];
        bwi_id_text(&id, text);
        fuzz_require(strlen(text) == size && memcmp(text, data, size) == 0);
    }
    char *key = fuzz_text(data, size);
    struct bwi_key_parts parts;
    if (bwi_key_parse(key, &parts)) fuzz_require(strcmp(made_of(&parts).s, key) == 0);
    free(key);
}
