"""The few lines that show what a program's forwards compute, for whoever wants to see it without kvdemo. A test runs them."""

__all__ = ["COUNTING_CODE"]

COUNTING_CODE = '''\
def show(model, args, kwargs):
    """One line for each forward: after the first, 1 position computed with a cache, all of them again without."""
    ids = kwargs.get("input_ids", args[0] if args else None)
    cache = kwargs.get("cache", kwargs.get("past_key_values"))
    read = 0 if cache is None else int(cache.get_seq_length())
    computed = "?" if ids is None else ids.shape[1]
    print(f"computed {computed} positions, read {read} from {type(cache).__name__ if cache is not None else 'no cache'}")


# Behind the line that loads your model; handle.remove() ends it
handle = model.register_forward_pre_hook(show, with_kwargs=True)
'''
