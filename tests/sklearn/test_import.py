"""scikit-learn is an extra: not imported before it is asked for, and named when it is missing."""

import subprocess
import sys

CODE = """
import sys
import limitformer
assert "sklearn" not in sys.modules
sys.modules["sklearn"] = None
try:
    import limitformer.sklearn
except ModuleNotFoundError as error:
    print(error)
"""


def test_a_missing_scikit_learn_says_the_command():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    expected = 'sklearn is not installed. Run: pip install "limitformer[sklearn]"'
    assert done.stdout.strip() == expected
