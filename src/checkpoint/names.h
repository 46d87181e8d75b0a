/* SPDX-License-Identifier: Apache-2.0 */
/* Taking the names of listings apart. What is not a name of this format is somebody else's, and is left alone. */
#ifndef BWI_CHECKPOINT_NAMES_H
#define BWI_CHECKPOINT_NAMES_H

#include "format/id.h"
#include "format/limits.h"
#include "store/store.h"

/* "<id>/" of checkpoints/ and data/<ff>/ */
bool bwi_names_id(const struct bwi_store_names *names, size_t i, struct bwi_id *ret);
/* "<group>" of groups/; "<group>/" of data/<ff>/<id>/ when `directory` */
bool bwi_names_group(const struct bwi_store_names *names, size_t i, bool directory, uint32_t *ret);
/* How many groups the names of groups/ speak of, where nothing else says it: the highest number and one. A number
 * behind a gap larger than can be believed is a stray, and no reason to take memory for a million groups. */
uint32_t bwi_names_groups(const struct bwi_store_names *names);
/* "<attempt>-<nonce>/" of layouts/ */
bool bwi_names_attempt(const struct bwi_store_names *names, size_t i, uint32_t *ret_attempt, uint32_t *ret_nonce);
/* "<launch>/" of launches/, without its slash */
bool bwi_names_launch(const struct bwi_store_names *names, size_t i, char ret[BWI_NAME_BUF]);

/* Whether a listing of checkpoints/ holds one of this attempt. */
bool bwi_names_have_attempt(const struct bwi_store_names *names, uint32_t attempt, uint32_t nonce);

#endif
