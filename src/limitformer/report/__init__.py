"""Reports: results as dataclasses, and self-contained HTML pages that show them."""
