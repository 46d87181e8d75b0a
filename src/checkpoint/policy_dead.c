/* SPDX-License-Identifier: Apache-2.0 */
/* Since when something is dead, by the log. Pure. */
#include "checkpoint/sweep.h"

int64_t bwi_policy_dead_since(const struct bwi_entry *entries, size_t count, const struct bwi_id *id) {
    size_t first = count; /* of the entries at the end that all call it dead */
    while (first > 0 && bwi_policy_fate(&entries[first - 1], id) == BWI_FATE_DEAD) first--;
    if (first == 0) return INT64_MIN;
    return first == count ? INT64_MAX : entries[first].time_ms;
}
