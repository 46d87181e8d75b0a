# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch and arrays of NumPy as memory with an address. Nothing is copied here but what PyTorch itself
holds as a promise only: conjugated and negated views."""

import sys

import torch

from .. import Tensor
from ._values import refuse

DIMS_MAX = 16  #: of the library
NAME_BYTES_MAX = 8192  #: of the library

_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32",
    "int64": "I64", "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "complex128": "C128", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
}
#: torch.dtype -> the library's name, for those that this PyTorch has
DTYPES = {getattr(torch, name): text for name, text in _NAMES.items() if hasattr(torch, name)}
OF_NAME = {text: dtype for dtype, text in DTYPES.items()}
_NUMPY = {"|b1": "BOOL", "|u1": "U8", "|i1": "I8", "<u2": "U16", "<i2": "I16", "<u4": "U32", "<i4": "I32",
          "<u8": "U64", "<i8": "I64", "<f2": "F16", "<f4": "F32", "<f8": "F64", "<c8": "C64", "<c16": "C128"}
TO_NUMPY = {text: dtype for dtype, text in _NUMPY.items()}  #: the library's name -> NumPy's


def numpy():
    """NumPy, if the program uses it: else no value can be of its types."""
    return sys.modules.get("numpy")


def is_array(value):
    np = numpy()
    return np is not None and type(value) is np.ndarray


def is_scalar(value):
    np = numpy()
    return np is not None and isinstance(value, np.generic)


def numpy_dtype(value, path):
    """The library's name for the dtype of an array or scalar."""
    name = _NUMPY.get(value.dtype.str)
    if name is None:
        raise refuse(path, f"NumPy's dtype {value.dtype} cannot be saved")
    return name


def check_array(array, path):
    """Refuses what cannot be saved like a tensor."""
    numpy_dtype(array, path)
    if array.ndim > DIMS_MAX:
        raise refuse(path, f"expected at most {DIMS_MAX} dimensions, found {array.ndim}")


def check(tensor, path):
    """Refuses what is no plain memory of this process."""
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        raise refuse(path, f"{kind.__module__}.{kind.__qualname__} is a tensor of a kind of its own; expected "
                           "torch.Tensor or Parameter")
    if tensor.layout is not torch.strided:
        raise refuse(path, f"a tensor of layout {tensor.layout} cannot be saved; give its parts")
    if tensor.device.type == "meta":
        raise refuse(path, "a meta tensor has no values")
    if tensor.device.type != "cpu":
        raise refuse(path, f"a tensor on {tensor.device} cannot be saved yet; give its .cpu()")
    if tensor.is_quantized or tensor.dtype not in DTYPES:
        raise refuse(path, f"the dtype {tensor.dtype} cannot be saved")
    if tensor.dim() > DIMS_MAX:
        raise refuse(path, f"expected at most {DIMS_MAX} dimensions, found {tensor.dim()}")
    _check_storage(tensor, path)


def _check_storage(tensor, path):
    if tensor.numel() == 0:
        return
    try:
        has, address = tensor.untyped_storage().nbytes(), tensor.data_ptr()
    except RuntimeError as e:
        raise refuse(path, f"its memory cannot be had: {e}") from None
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    needs = (tensor.storage_offset() + reach) * tensor.element_size()
    if address == 0 or has < needs:
        raise refuse(path, f"its storage has been given back: it needs {needs} bytes and has {has}")


def resolved(tensor):
    """Itself, or a copy where it is conjugated or negated only when it is read."""
    lazy = tensor.is_neg() or (tensor.is_complex() and tensor.is_conj())
    return tensor.resolve_conj().resolve_neg() if lazy else tensor


def strides(tensor):
    return tuple(s * tensor.element_size() for s in tensor.stride())


def overlaps_itself(tensor):
    """Whether two elements of a torch.Tensor or an array may share memory."""
    unit, steps = (1, tensor.stride()) if isinstance(tensor, torch.Tensor) else (tensor.itemsize, tensor.strides)
    if 0 in tensor.shape:
        return False
    reach = 0
    for stride, n in sorted((abs(s), n) for n, s in zip(tensor.shape, steps, strict=True) if n > 1):
        if stride < reach + unit:
            return True
        reach += stride * (n - 1)
    return False


def span(tensor):
    """(first byte, byte after the last) of its memory."""
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size()


def described(name, value, **more):
    """The Tensor of a torch.Tensor's or an array's memory. It does not keep that memory alive."""
    if isinstance(value, torch.Tensor):
        where, dtype, steps = value.data_ptr(), DTYPES[value.dtype], strides(value)
    else:
        where, dtype, steps = value.__array_interface__["data"][0], _NUMPY[value.dtype.str], value.strides
    return Tensor(name, where, **{"dtype": dtype, "shape": tuple(value.shape), "stride_bytes": steps} | more)


def row(value, part=None):
    """[dtype, shape] of a torch.Tensor or array, as the tree has it; of the whole tensor, if it is a part of one."""
    dtype = DTYPES[value.dtype] if isinstance(value, torch.Tensor) else _NUMPY[value.dtype.str]
    return [dtype, list(value.shape if part is None else part.shape)]
