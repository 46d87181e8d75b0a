/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that an export is written to: files are staged, synced, and get their names only when all of them are there.
 *
 * The staging folder is DIR/.breakwater-export. What a crash leaves there is taken away by the next export. */
#ifndef BW_CLI_FOLDER_H
#define BW_CLI_FOLDER_H

#include "cli/out.h"

#define CLI_INDEX_NAME  "model.safetensors.index.json"
#define CLI_SINGLE_NAME "model.safetensors"

struct cli_folder {
    const char *path;
    int fd;       /* of DIR, locked */
    int stage;    /* of the staging folder */
    char **files; /* final names, relative to DIR; file i is staged as "<i>" */
    size_t file_count, file_cap;
    char **earlier; /* files of an earlier export */
    size_t earlier_count, earlier_cap;
};

/* Makes DIR if need be and locks it. BW_E_EXISTS: it holds an earlier export and `force` is false. */
int cli_folder_open(const char *path, bool force, struct cli_folder *ret, struct bw_error *err);
/* A new staged file, open for writing. `name` has at most two slashes. */
int cli_folder_create(struct cli_folder *folder, const char *name, int *ret_fd, struct bw_error *err);
/* Syncs and closes. */
int cli_folder_finish(struct cli_folder *folder, int fd, const char *name, struct bw_error *err);
/* Writes all bytes at an offset. */
int cli_write_at(int fd, const void *bytes, size_t n, uint64_t offset, const char *name, struct bw_error *err);
/* Takes the files of the earlier export away, and gives the staged ones their names; the index comes last. */
int cli_folder_publish(struct cli_folder *folder, struct bw_error *err);
/* Removes what is staged and closes. */
void cli_folder_close(struct cli_folder *folder);

#endif
