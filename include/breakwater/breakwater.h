/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file breakwater.h
 * All of Breakwater in one include, and its version.
 *
 * Breakwater keeps a training job moving while its state moves through the
 * storage hierarchy, and says at every moment how safe that state is.
 *
 *     checkpointer.h  open a run, resume, close
 *     save.h          asynchronous saves and their levels
 *     restore.h       reading checkpoints, whole or in parts
 *     catalog.h       runs, checkpoints and history: listing, verifying, pruning, repairing
 *     tensor.h        element types, boxes, levels
 *     io.h            how bytes move
 *     error.h         the error object
 *     status.h        status codes
 *
 * Rules that hold everywhere
 *   - Functions that can fail return 0 or a negative `enum bw_status` and fill the nullable
 *     `struct bw_error` that comes last. Outputs are written only on success.
 *   - Objects are opaque; whoever opened one closes it. Closing NULL is allowed.
 *   - Option structs begin with `struct_size` and are initialised with their `_INIT` macro, so a
 *     program that was compiled against an older header goes on working. A size that no header
 *     had, such as one that ends inside a member, is BW_E_INVALID.
 *   - Structs that the library fills, such as statistics and events, have no such size. They grow
 *     only together with the number in the name of the shared library.
 *   - Units are in the names: `_bytes`, `_ms`, `_ns`, `_bytes_per_s`.
 *   - The library never prints, aborts, installs a signal handler, reads the environment, or calls
 *     back into the caller's code. Its threads block all signals.
 *   - After fork() only the parent may use its objects. In the child every function refuses them at
 *     once: BW_E_STATE, or nothing where there is no status to return; closing one there lets go of
 *     nothing. The child may exec, exit, or open objects of its own.
 */
#ifndef BW_BREAKWATER_H
#define BW_BREAKWATER_H

#include <breakwater/catalog.h>
#include <breakwater/checkpointer.h>
#include <breakwater/error.h>
#include <breakwater/io.h>
#include <breakwater/restore.h>
#include <breakwater/save.h>
#include <breakwater/status.h>
#include <breakwater/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of these headers: major changes break programs, minor ones add, patches mend. */
#define BW_VERSION_MAJOR 0
#define BW_VERSION_MINOR 1
#define BW_VERSION_PATCH 0

/** Version of the library that is loaded, as "0.1.0". Static. */
BW_API const char *bw_version(void);

#ifdef __cplusplus
}
#endif

#endif
