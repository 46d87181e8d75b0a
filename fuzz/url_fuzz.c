/* SPDX-License-Identifier: Apache-2.0 */
/* URLs of stores, and keys in them. The path that a URL names has one URL of its own, which names the same path; a key
 * never leads out of the root. Reaches src/store/store_open.c src/store/store.c */
#include "base/error.h"
#include "base/text.h"
#include "fuzz.h"
#include "store/store_private.h"

/* In the place of the stores: only what they are asked to open counts. */
static char opened_path[8192], opened_url[1024];
static bool opened;

int bwi_store_posix_open(const char *path, const char *url, const struct bwi_store_options *o, struct bwi_store **ret,
                         struct bw_error *err) {
    (void)o;
    (void)ret;
    (void)err;
    fuzz_require(path[0] == '/' && bwi_format(opened_path, sizeof opened_path, "%s", path));
    fuzz_require(strlen(url) < sizeof((struct bwi_store *)0)->url);
    fuzz_require(bwi_format(opened_url, sizeof opened_url, "%s", url));
    return (opened = true, 0);
}

int bwi_store_memory_open_url(const char *name, const struct bwi_store_options *o, struct bwi_store **ret,
                              struct bw_error *err) {
    (void)o;
    (void)ret;
    (void)err;
    fuzz_require(bwi_name_valid(name));
    return 0;
}

static int open_url(const char *url) {
    struct bwi_store_options options = {0};
    struct bwi_store *store = NULL;
    struct bw_error err = BW_ERROR_INIT;
    opened = false;
    const int rc = bwi_store_open(url, &options, &store, &err);
    if (rc != 0) fuzz_failed(err);
    return rc;
}

static void read_url(const char *url) {
    char path[sizeof opened_path], again[sizeof opened_url];
    if (open_url(url) != 0 || !opened) return;
    fuzz_require(strstr(url, "%00") == NULL || strncmp(url, "file:", 5) != 0); /* it would end the path */
    memcpy(path, opened_path, sizeof path);
    memcpy(again, opened_url, sizeof again);
    fuzz_require(open_url(again) == 0 && opened);
    fuzz_require(strcmp(opened_path, path) == 0 && strcmp(opened_url, again) == 0);
}

static void read_key(const char *key) {
    const bool valid = bwi_store_key_valid(key);
    if (bwi_store_prefix_valid(key)) fuzz_require(key[0] == '\0' || key[strlen(key) - 1] == '/');
    if (!valid) return;
    fuzz_require(key[0] != '/' && key[0] != '.' && strstr(key, "/.") == NULL && strstr(key, "//") == NULL);
    fuzz_require(strlen(key) <= BWI_STORE_KEY_MAX && key[strlen(key) - 1] != '/');
}

void fuzz_one(uint8_t *data, size_t size) {
    char *text = fuzz_text(data, size);
    read_url(text);
    read_key(text);
    free(text);
}
