"""Numbers as commands take and show them."""

from typing import Any


def rounded(value: float | None, digits: int = 5) -> str:
    """A number to some digits, nothing for None.

    >>> rounded(1234567.0), rounded(0.000123456), rounded(None)
    ('1.2346e+06', '0.00012346', '')
    """
    return "" if value is None else f"{value:.{digits}g}"


def with_error(value: float, sem: float | None) -> str:
    """A value with its standard error, to two digits of it.

    >>> with_error(0.12345, 0.0067), with_error(2.0, None), with_error(-1520.0, 31.0)
    ('0.1235 ± 0.0067', '2', '-1520 ± 31')
    """
    if sem is None or not sem > 0:
        return rounded(value)
    from limitformer.report.numbers import with_error as written

    return written(value, sem) if 1e-5 <= sem < 1e6 else f"{value:.6g} ± {sem:.1e}"


def numbers(text: str, option: str, kind: type = int) -> tuple:
    """A list such as `64,128`, or a usage error.

    >>> numbers("64, 128", "--widths")
    (64, 128)
    """
    from limitformer.cli.command import Usage

    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise Usage(f"{option} {text}: expected {what} between commas, such as 64,128") from None


def draw_options(draws: int | None, seed: int) -> dict[str, Any]:
    """Arguments of `net.kernel`: the library's fixed key unless a seed is given."""
    import jax

    options: dict[str, Any] = {} if draws is None else {"draws": draws}
    return options | ({"key": jax.random.key(seed)} if seed else {})
