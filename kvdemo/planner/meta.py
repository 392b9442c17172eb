"""Running a model's code on the meta device, where tensors have shapes and no data.

Some models ask a tensor for its values (is any token masked? how many went to this expert?). On meta there are none, so
such questions get a harmless answer: zero, nothing masked, every check passed. Shapes of a cache do not hang on these
answers; the property test over all model types holds us to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["on_meta"]


@contextmanager
def on_meta() -> Iterator[None]:
    """New tensors are made on meta, gradients are off, and questions about values get an answer.

    All of it holds for the calling thread only, so that a model that runs in another thread is not disturbed.
    """
    import torch

    with torch.no_grad(), torch.device("meta"), _answering_mode():
        yield


def _answering_mode() -> Any:
    """The dispatch mode, made on first use because its base class lives in torch."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
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
                if func in picking:
                    args = (first, _all_of(args[1]), *args[2:])
                if func is aten.equal.default:
                    return True
                if func is aten._to_copy.default and str(kwargs.get("device")) == "cpu":
                    return torch.zeros(first.shape, dtype=kwargs.get("dtype") or first.dtype, device="cpu")
            result = func(*args, **kwargs)
            if func in anything:
                result._kvdemo_is_any = True
            return result

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
