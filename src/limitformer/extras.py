"""Optional packages: imported when they are first needed, with the command that installs them."""

import importlib
from types import ModuleType


def optional(name: str, extra: str = "demo") -> ModuleType:
    """Import a module that belongs to one of limitformer's extras.

    Args:
        name: the module, such as `"matplotlib.pyplot"`.
        extra: the extra that brings it.

    Returns:
        The module.

    Raises:
        ModuleNotFoundError: it is not installed; the message has the pip command.

    Example:
        >>> optional("json").loads("[1]")
        [1]
        >>> optional("not_there")
        Traceback (most recent call last):
        ModuleNotFoundError: not_there is not installed. Run: pip install "limitformer[demo]"
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.split(".")[0]
        if error.name is not None and error.name.split(".")[0] != package:
            raise  # the package is there, and something that it needs is not
        raise ModuleNotFoundError(
            f'{package} is not installed. Run: pip install "limitformer[{extra}]"', name=error.name
        ) from None
