"""Real data: loaders for published formats, text into arrays, and small sets that are built in.

Loaders read files that are on this machine; nothing is ever downloaded, and no pickle is loaded.
"""

from typing import TYPE_CHECKING, Any

from .builtin import breast_cancer, diabetes, digits, wine
from .cifar import cifar10
from .dataset import Dataset
from .glove_vectors import Vectors, glove
from .huggingface_dataset import huggingface
from .images import downsample, standardise
from .imdb_reviews import imdb
from .npz_file import npz
from .sentence_files import sentences
from .sequences import Sequences
from .tables import table
from .text_report import TextReport
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .text_steps import Embedder, Vocabulary

__all__ = [
    "Dataset",
    "Embedder",
    "Sequences",
    "TextReport",
    "Tokenizer",
    "Vectors",
    "Vocabulary",
    "breast_cancer",
    "cifar10",
    "diabetes",
    "digits",
    "downsample",
    "glove",
    "huggingface",
    "imdb",
    "npz",
    "sentences",
    "standardise",
    "table",
    "wine",
]


def __getattr__(name: str) -> Any:
    # The steps are scikit-learn's, which is imported by the first use of one of them.
    if name in ("Embedder", "Vocabulary"):
        from ..extras import optional

        optional("sklearn", "sklearn")
        from . import text_steps

        return getattr(text_steps, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
