"""The law of finitely many heads at infinite width (theory, section 3)."""
