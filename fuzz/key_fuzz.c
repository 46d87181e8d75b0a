/* SPDX-License-Identifier: Apache-2.0 */
/* Names that are found in a store: ids and keys. Nothing but a checkpoint's own canonical form parses. */
#include "format/id.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = fuzz_copy(data, size);
    struct bwi_id id;
    struct bwi_uuid uuid;
    (void)bwi_uuid_parse(bwi_span(copy, size), &uuid);
    if (bwi_id_parse(bwi_span(copy, size), &id)) {
        char text[BWI_ID_TEXT_BYTES];
        bwi_id_text(&id, text);
        fuzz_require(strlen(text) == size && memcmp(text, copy, size) == 0);
    }
    char *key = malloc(size + 1);
    if (key == NULL) abort();
    memcpy(key, copy, size);
    key[size] = '\0';
    struct bwi_key_parts parts;
    (void)bwi_key_parse(key, &parts);
    free(key);
    free(copy);
    return 0;
}
