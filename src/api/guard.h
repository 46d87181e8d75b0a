/* SPDX-License-Identifier: Apache-2.0 */
/* Work that may hang in the kernel: it runs on a thread of its own, and its caller waits no longer than it wants to.
 *
 * A system call on a mount that does not answer cannot be called off. So the caller goes, and the job, with all that it
 * holds, is left to the thread, which throws it away when the kernel lets go. */
#ifndef BWI_API_GUARD_H
#define BWI_API_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <breakwater/error.h>

/* On the heap, with copies of everything that it reads: it may outlive the call that made it. */
struct bwi_job {
    int (*run)(struct bwi_job *job, struct bw_error *err); /* on the thread */
    void (*discard)(struct bwi_job *job); /* its caller has gone: frees the job and its results; on the thread */
};

/* Between a job and who waits for it. A member of the job, or of what outlives it. */
struct bwi_pulse {
    _Atomic uint64_t heard_ns; /* when something was completed last */
    _Atomic bool given_up;     /* nobody waits any more: the job is to end where it can */
};

/* Runs a job and waits until it has ended, or until there was no sign of life for `patience_ms` (0: however long it
 * takes). pulse NULL: there is no sign of life but the end. Returns what `run` returned. BW_E_TIMEOUT with *ret_gone:
 * the job is the thread's now; without it, it is the caller's again, whatever is returned. */
int bwi_guard(struct bwi_job *job, uint64_t patience_ms, struct bwi_pulse *pulse, bool *ret_gone, struct bw_error *err);

/* In nanoseconds; what is too long to count is BWI_NEVER. */
uint64_t bwi_ns_of_ms(uint64_t ms);

/* ns after `from_ns`, BWI_NEVER for a patience of 0 or one that is too long to count. */
uint64_t bwi_patience_end_ns(uint64_t from_ns, uint64_t patience_ms);

#endif
