"""What the stored run of the task benchmark says, in words."""

CONCLUSIONS = """\
PLACEHOLDER
"""
