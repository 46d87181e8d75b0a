/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file tensor.h
 * Element types, boxes and levels: the words that save.h, restore.h and
 * catalog.h share.
 *
 * A **tensor** has a name, a dtype and a global shape. A **box** is the part of
 * it that one rank holds: an offset and an extent per dimension. A box that is
 * the whole tensor has offset 0 and the tensor's shape as its extent.
 *
 * Bytes of a box are its elements in row-major order (the last dimension runs
 * fastest), without gaps, little-endian, complex numbers as (real, imaginary).
 * In memory an element is found at
 *
 *     data + sum over d of index[d] * stride_bytes[d]
 *
 * so transposed, sliced, expanded (stride 0) and reversed (negative stride)
 * memory is described without a copy.
 *
 * Bits come back as they went in: NaN payloads and -0.0 included. Nothing is
 * ever converted.
 *
 * Everything here is a plain value; there is nothing to free and no thread
 * to think of.
 */
#ifndef BW_TENSOR_H
#define BW_TENSOR_H

#include <breakwater/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Most dimensions of a tensor. NumPy and PyTorch allow 64; no model that we know of has more than 8. */
#define BW_DIMS_MAX 16

/** Longest name of a tensor or blob in bytes, NUL not counted. */
#define BW_TENSOR_NAME_BYTES_MAX 8192

/**
 * Greatest step. Steps are written as JSON integers, and the widest integer
 * that every JSON reader in use keeps exact is a signed 64-bit one.
 */
#define BW_STEP_MAX UINT64_C(9223372036854775807)

/**
 * Element types. The numbers are part of the on-disk format and never change.
 * The first fifteen are those that every version of safetensors knows; boxes of
 * the others are stored as bytes, and the layout holds their type.
 */
enum bw_dtype {
    BW_BOOL = 1,         /**< one byte, 0 or 1 */
    BW_U8 = 2,           /**< unsigned 8-bit integer */
    BW_I8 = 3,           /**< signed 8-bit integer */
    BW_F8_E5M2 = 4,      /**< 8-bit float, 5 bits of exponent */
    BW_F8_E4M3 = 5,      /**< 8-bit float, 4 bits of exponent, no infinities (PyTorch: float8_e4m3fn) */
    BW_I16 = 6,          /**< signed 16-bit integer */
    BW_U16 = 7,          /**< unsigned 16-bit integer */
    BW_F16 = 8,          /**< IEEE 754 binary16 */
    BW_BF16 = 9,         /**< bfloat16 */
    BW_I32 = 10,         /**< signed 32-bit integer */
    BW_U32 = 11,         /**< unsigned 32-bit integer */
    BW_F32 = 12,         /**< IEEE 754 binary32 */
    BW_F64 = 13,         /**< IEEE 754 binary64 */
    BW_I64 = 14,         /**< signed 64-bit integer */
    BW_U64 = 15,         /**< unsigned 64-bit integer */
    BW_C64 = 16,         /**< complex of two binary32 */
    BW_C128 = 17,        /**< complex of two binary64 */
    BW_F8_E4M3FNUZ = 18, /**< 8-bit float, PyTorch: float8_e4m3fnuz */
    BW_F8_E5M2FNUZ = 19, /**< 8-bit float, PyTorch: float8_e5m2fnuz */
    BW_F8_E8M0 = 20,     /**< 8-bit scale, PyTorch: float8_e8m0fnu */
};

/** Bytes of an element of `dtype`; 0 when there is no such dtype. */
BW_API size_t bw_dtype_bytes(int dtype);

/** Name as safetensors writes it ("F32", "BF16", ...), or "?" when there is no such dtype. Static. */
BW_API const char *bw_dtype_name(int dtype);

/** The dtype of a name that bw_dtype_name gives; 0 when there is none. Upper case only. */
BW_API int bw_dtype_parse(const char *name);

/**
 * How safe a save is. The ladder is the heart of Breakwater and is never
 * blurred: a level is announced only once it is true, and a level says what it
 * survives.
 */
enum bw_level {
    /** Nothing yet: the caller must not change its tensors. */
    BW_LEVEL_NONE = 0,
    /** A consistent copy exists, the caller may change its tensors again. Survives nothing. */
    BW_CAPTURED = 1,
    /**
     * This rank's data is complete and synced on the node's local tier. Survives a process crash and a
     * reboot.
     */
    BW_LOCAL = 2,
    /** This rank's data is complete and proven in the authority. Survives the loss of this node. */
    BW_REMOTE = 3,
    /**
     * Every rank's data of this checkpoint is in the authority, and the history entry that makes it live
     * exists. Survives the loss of any node. Only this may be reported to a scheduler as recoverable.
     */
    BW_COMMITTED = 4,
};

/** "none", "captured", "local", "remote", "committed", or "?". Static. */
BW_API const char *bw_level_name(int level);

#ifdef __cplusplus
}
#endif

#endif
