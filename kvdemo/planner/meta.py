"""Running a model's code on the meta device, where tensors have shapes and no data.

Some models ask a tensor for its values (is any token masked? how many went to this expert?). On meta there are none, so
such questions get a harmless answer: zero, nothing masked, every check passed. Shapes of a cache do not hang on these
answers; the property test over all model types holds us to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["born_in_bfloat16", "on_meta"]


@contextmanager
def on_meta() -> Iterator[None]:
    """New tensors are made on meta, gradients are off, and questions about values get an answer.

    All of it holds for the calling thread only, so that a model that runs in another thread is not disturbed.
    """
    import torch

    with torch.no_grad(), torch.device("meta"), _answering_mode():
        yield


@contextmanager
def born_in_bfloat16() -> Iterator[None]:
    """New tensors whose dtype is not said are bfloat16, as while a bfloat16 checkpoint is loaded.

    torch.set_default_dtype would do it for every thread, the one that is generating among them.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    said = {torch.Tensor.float, torch.Tensor.to, torch.Tensor.type, torch.Tensor.double}

    class BornInBfloat16(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            result = func(*args, **kwargs)
            if not isinstance(result, torch.Tensor) or result.dtype != torch.float32:
                return result
            if kwargs.get("dtype") is not None or func in said:
                return result
            return result if _any_float((args, tuple(kwargs.values()))) else result.to(torch.bfloat16)

    def _any_float(value: Any) -> bool:
        if isinstance(value, list | tuple):
            return any(_any_float(inner) for inner in value)
        return isinstance(value, torch.Tensor) and value.is_floating_point()

    with BornInBfloat16():
        yield


def _answering_mode() -> Any:
    """The dispatch mode, made on first use because its base class lives in torch."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    known: dict[Any, Any] = {}
    pure: dict[Any, bool] = {}
    picking = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
    anything = {aten.any.default, aten.any.dim, aten.any.dims}

    class AnsweringMode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            first = args[0] if args and isinstance(args[0], torch.Tensor) and args[0].is_meta else None
            if first is not None:
                if func is aten._local_scalar_dense.default:
                    return _answer(first)
                if func is aten.nonzero.default:
                    return torch.empty((1, first.ndim), dtype=torch.long, device="meta")
                if (
                    func is aten.split_with_sizes.default
                    and sum(args[1]) != first.shape[args[2] if len(args) > 2 else 0]
                ):
                    whole = first.shape[args[2] if len(args) > 2 else 0]
                    args = (first, [whole, *[0] * (len(args[1]) - 1)], *args[2:])
                if func in picking:
                    args = (first, _all_of(args[1]), *args[2:])
                if func is aten.equal.default:
                    return True
                if func is aten._to_copy.default and str(kwargs.get("device")) == "cpu":
                    return torch.zeros(first.shape, dtype=kwargs.get("dtype") or first.dtype, device="cpu")
            if func in anything:
                result = func(*args, **kwargs)
                result._kvdemo_is_any = True
                return result
            return self._remembered(func, args, kwargs)

        def _remembered(self, func: Any, args: Any, kwargs: Any) -> Any:
            """The result of an operation, from the last time it was asked with such shapes: layers repeat themselves."""
            if func not in pure:
                pure[func] = all(part.alias_info is None for part in (*func._schema.arguments, *func._schema.returns))
            if not pure[func]:
                return func(*args, **kwargs)
            try:
                asked = (func, _described(args), _described(tuple(kwargs.items())))
                shape = known.get(asked)
            except TypeError:  # an argument that cannot be compared
                return func(*args, **kwargs)
            if shape is None:
                result = func(*args, **kwargs)
                if isinstance(result, torch.Tensor) and result.is_meta:
                    known[asked] = (result.shape, result.stride(), result.dtype)
                return result
            return torch.empty_strided(shape[0], shape[1], dtype=shape[2], device="meta")

    def _described(value: Any) -> Any:
        """A value as something to compare: a tensor on meta is its shape, strides and dtype."""
        if isinstance(value, torch.Tensor):
            if not value.is_meta:
                raise TypeError
            return value.shape, value.stride(), value.dtype
        return (type(value), *map(_described, value)) if isinstance(value, list | tuple) else (type(value), value)

    def _all_of(indices: Any) -> list[Any]:
        """Indices by number for indices by mask, as if the mask held everywhere."""
        found: list[Any] = []
        for index in indices:
            if index is not None and index.dtype == torch.bool:
                found += [torch.empty(index.numel(), dtype=torch.long, device="meta")] * index.ndim
            else:
                found.append(index)
        return found

    def _answer(tensor: Any) -> bool | int | float:
        """The value of a tensor with one element: False for "is there any", True for other yes-or-no, else 0."""
        if tensor.dtype == torch.bool:
            return not getattr(tensor, "_kvdemo_is_any", False)
        return 0.0 if tensor.dtype.is_floating_point else 0

    return AnsweringMode()
