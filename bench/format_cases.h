/* SPDX-License-Identifier: Apache-2.0 */
/* The formats at the sizes of large jobs, one function per subject. */
#ifndef BW_BENCH_FORMAT_CASES_H
#define BW_BENCH_FORMAT_CASES_H

#include "compare.h"

void cases_hash(struct compare *c);
void cases_json(struct compare *c);
void cases_history(struct compare *c);
void cases_manifest(struct compare *c);
void cases_layout(struct compare *c);
void cases_content(struct compare *c);
void cases_index(struct compare *c);
void cases_pack(struct compare *c);

#endif
