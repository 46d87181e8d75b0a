/* SPDX-License-Identifier: Apache-2.0 */
/* A file of somebody else in memory, however large it says it is. */
#ifndef BW_CLI_MAPPED_H
#define BW_CLI_MAPPED_H

#include "cli/out.h"

struct cli_mapped {
    const unsigned char *bytes; /* not NULL once it is open, even with none */
    size_t n;
};

/* What is no file (a FIFO, a device, a folder) is BW_E_FORMAT, and is not waited for. folder: a descriptor, or
 * AT_FDCWD. links: whether `name` may be a symbolic link. */
int cli_mapped_open(int folder, const char *name, bool links, struct cli_mapped *ret, struct bw_error *err);
void cli_mapped_close(struct cli_mapped *m); /* idempotent */

#endif
