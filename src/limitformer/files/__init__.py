"""Networks in files: TOML that people read and write, and the same as tables, one line, a table."""

from .describe import Description, describe
from .errors import NetworkFileError
from .one_line import one_line
from .read import from_dict, load, loads
from .schema import schema
from .toml import to_toml
from .write import FORMAT, digest, to_dict

__all__ = [
    "FORMAT",
    "Description",
    "NetworkFileError",
    "describe",
    "digest",
    "from_dict",
    "load",
    "loads",
    "one_line",
    "schema",
    "to_dict",
    "to_toml",
]
