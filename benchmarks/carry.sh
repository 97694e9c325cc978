#!/usr/bin/env bash
# What a GPU machine without a network lacks, beside JAX, NumPy and SciPy: unpacked wheels for its Python, in .device/.
#   benchmarks/carry.sh [3.12]
# there, in the repository:
#   PYTHONPATH=.device/min:.device/zarr:src python3 -m limitformer ...     (the command line; zarr for stores)
#   cd benchmarks && PYTHONPATH=../.device/min:../src python3 gpu_peer.py --peer ../.device/peer
set -euo pipefail
cd "$(dirname "$0")/.."
version="${1:-3.12}"

wheels="$(mktemp -d)"
trap 'rm -rf "$wheels"' EXIT

# not `pip install --target`, which takes versions for the Python that runs it
unpack() {
  local name="$1" wheel
  shift
  python3 -m pip --disable-pip-version-check -q download --no-deps --only-binary=:all: \
    --python-version "$version" --dest "$wheels/$name" "$@"
  rm -rf ".device/$name"
  for wheel in "$wheels/$name"/*.whl; do python3 -m zipfile --extract "$wheel" ".device/$name"; done
}

unpack min equinox jaxtyping wadler-lindig typer rich click shellingham markdown-it-py mdurl pygments annotated-doc \
  pydantic pydantic-core annotated-types typing-inspection typing-extensions
unpack zarr zarr numcodecs google-crc32c donfig msgspec fsspec pyyaml typing-extensions packaging
unpack peer neural-tangents==0.6.5 frozendict
du -sh .device/*
