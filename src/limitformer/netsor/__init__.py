"""Netsor programs with scores: one program, run at width n or in the limit (theory 3)."""

from . import examples
from .conditions import ConditionWarning, Finding, check
from .limit import Estimate, Limit
from .program import (
    Initial,
    MatMul,
    Matrix,
    Mix,
    Moment,
    Node,
    Nonlin,
    Program,
    Score,
    Vector,
)
from .simulate import Simulation

__all__ = [
    "ConditionWarning",
    "Estimate",
    "Finding",
    "Initial",
    "Limit",
    "MatMul",
    "Matrix",
    "Mix",
    "Moment",
    "Node",
    "Nonlin",
    "Program",
    "Score",
    "Simulation",
    "Vector",
    "check",
    "examples",
]
