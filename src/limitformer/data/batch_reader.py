"""Reads CIFAR-10's Python batches, which are pickles, without executing anything.

A pickle is a program for a small stack machine, and some of its instructions call functions by
name. Here `pickletools` splits the program into instructions, and this file follows those that
build dicts, lists, tuples, numbers, strings and one kind of NumPy array. Names are compared with
a fixed list and never looked up, so no code of the file's choosing can run; any other instruction
or name is an error.
"""

from __future__ import annotations

import dataclasses
import pickletools
from math import prod
from typing import Any

import numpy as np

# How NumPy 1 and 2 and Python 3 name what an array of bytes is made of.
_RECONSTRUCT = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_NDARRAY = "numpy ndarray"
_DTYPE = "numpy dtype"
_ENCODE = "_codecs encode"
_NAMES = {*_RECONSTRUCT, _NDARRAY, _DTYPE, _ENCODE}

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "BINBYTES", "SHORT_BINBYTES"}
_STRINGS = {"BINSTRING", "SHORT_BINSTRING"}


class UnsafeBatch(ValueError):
    """The file asks for something that a CIFAR-10 batch does not need."""


@dataclasses.dataclass(frozen=True)
class _Name:
    name: str


class _Dtype:
    """A dtype that has not been told its details."""

    code: str = ""


class _Array:
    """An array that has not been told its content."""

    value: np.ndarray | None = None


_MARK = object()


def read_batch(data: bytes, name: str = "the file") -> dict[str, Any]:
    """Decode one of CIFAR-10's Python batches.

    Args:
        data: the content of `data_batch_1` or `batches.meta`.
        name: what to call it in errors.

    Returns:
        Its dict; keys are `str` (`data`, `labels`, `label_names`, ...), arrays are uint8, byte
        strings are `bytes`.

    Raises:
        UnsafeBatch: an instruction or a name that such a batch does not use, or a damaged file.

    Example:
        >>> read_batch(b"\\x80\\x02}U\\x06labels](K\\x06K\\x09es.")
        {'labels': [6, 9]}
        >>> read_batch(b"\\x80\\x02cos\\nsystem\\nU\\x02ls\\x85R.")
        Traceback (most recent call last):
        limitformer.data.batch_reader.UnsafeBatch: the file names os system, ...
    """
    try:
        out = _run(data, name)
    except UnsafeBatch:
        raise
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, StopIteration) as error:
        raise UnsafeBatch(
            f"{name} is damaged ({error}). Get it again, or take the binary archive, "
            "cifar-10-binary.tar.gz"
        ) from None
    if not isinstance(out, dict):
        raise UnsafeBatch(f"{name} holds a {type(out).__name__}, and a CIFAR-10 batch is a dict")
    return {_text(key): value for key, value in out.items()}


def _run(data: bytes, name: str) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for op, arg, position in pickletools.genops(data):
        code = op.name
        if code in _VALUES:
            stack.append(arg)
        elif code in _STRINGS:  # Python 2 wrote bytes this way; pickletools reads them as latin-1
            stack.append(str(arg).encode("latin-1"))
        elif code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        elif code in ("PROTO", "FRAME"):
            pass
        elif code == "MARK":
            stack.append(_MARK)
        elif code in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[code]())
        elif code in ("BINPUT", "LONG_BINPUT"):
            memo[arg] = stack[-1]  # type: ignore[index]
        elif code in ("BINGET", "LONG_BINGET"):
            stack.append(memo[arg])  # type: ignore[index]
        elif code in ("TUPLE1", "TUPLE2", "TUPLE3"):
            n = int(code[-1])
            stack[-n:] = [tuple(stack[-n:])]
        elif code == "TUPLE":
            items = _to_mark(stack)
            stack.append(tuple(items))
        elif code == "APPEND":
            item = stack.pop()
            _is(stack[-1], list).append(item)
        elif code == "APPENDS":
            items = _to_mark(stack)
            _is(stack[-1], list).extend(items)
        elif code == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _is(stack[-1], dict)[key] = value
        elif code == "SETITEMS":
            items = _to_mark(stack)
            _is(stack[-1], dict).update(zip(items[::2], items[1::2], strict=True))
        elif code == "GLOBAL":
            if arg not in _NAMES:
                raise UnsafeBatch(
                    f"{name} names {arg}, which a CIFAR-10 batch has no use for; nothing was "
                    "executed. Take the binary archive instead, cifar-10-binary.tar.gz"
                )
            stack.append(_Name(str(arg)))
        elif code == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(_reduce(_is(function, _Name).name, _is(arguments, tuple)))
        elif code == "BUILD":
            state = stack.pop()
            _build(stack[-1], _is(state, tuple))
        elif code == "STOP":
            out = stack.pop()
            if stack:
                raise ValueError("values left over")
            return _finished(out)
        else:
            raise UnsafeBatch(
                f"{name} uses the pickle instruction {code} at byte {position}, which a CIFAR-10 "
                "batch has no use for; nothing was executed. Take the binary archive instead, "
                "cifar-10-binary.tar.gz"
            )
    raise ValueError("no end")


def _is(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _to_mark(stack: list[Any]) -> list[Any]:
    items = []
    while (item := stack.pop()) is not _MARK:
        items.append(item)
    return items[::-1]


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else _is(value, str)


def _reduce(function: str, arguments: tuple) -> Any:
    """What a call of one of the known names would have made."""
    if function in _RECONSTRUCT and arguments[0] == _Name(_NDARRAY):
        return _Array()
    if function == _DTYPE:
        dtype = _Dtype()
        dtype.code = _text(arguments[0])
        return dtype
    if function == _ENCODE and arguments[1] in ("latin1", b"latin1"):
        return _is(arguments[0], str).encode("latin-1")
    raise ValueError(f"a call of {function} with other arguments than an array's")


def _build(target: Any, state: tuple) -> None:
    """Give an array its (version, shape, dtype, column order, bytes); a dtype needs nothing."""
    if isinstance(target, _Dtype):
        return
    if not isinstance(target, _Array):
        raise ValueError(f"a {type(target).__name__} where an array belongs")
    _, shape, dtype, columns, content = state
    if _is(dtype, _Dtype).code not in ("u1", "|u1"):
        raise ValueError(f"an array of dtype {dtype.code}, expected uint8")
    shape = tuple(_is(size, int) for size in _is(shape, tuple))
    if prod(shape) != len(_is(content, bytes)):
        raise ValueError(f"an array of shape {shape} with {len(content)} bytes")
    flat = np.frombuffer(content, np.uint8)
    target.value = flat.reshape(shape, order="F" if columns else "C")


def _finished(out: Any) -> Any:
    if not isinstance(out, dict):
        return out
    return {key: value.value if isinstance(value, _Array) else value for key, value in out.items()}
