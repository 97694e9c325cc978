"""Cholesky factors of matrices of any size.

Large matrices are factorised by panels of columns, because LAPACK's own routine is not safe there:
OpenBLAS 0.3.30 (the one in SciPy and NumPy) with two threads ends the process in dpotrf from
about 17,000 rows on.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

LARGEST = 8192
"""Rows that LAPACK's own factorisation is given."""
_WIDTH = 2048  # columns of a panel


def cholesky(M: np.ndarray) -> np.ndarray:
    """L with L L^T = M; what is above the diagonal of L is not zero.

    By panels, each from those on its left: with j the panel's rows and columns, k those before it,

        L_jj L_jj^T = M_jj - L_jk L_jk^T,    L_ij = (M_ij - L_ik L_jk^T) L_jj^{-T}   for i below j.

    Args:
        M: symmetric, float64, in Fortran's order; it is overwritten.

    Raises:
        scipy.linalg.LinAlgError: M is not positive definite.

    Example:
        >>> np.tril(cholesky(np.array([[4.0, 2.0], [2.0, 5.0]], order="F"))).tolist()
        [[2.0, 0.0], [1.0, 2.0]]
    """
    n = len(M)
    if n <= LARGEST:
        return scipy.linalg.cho_factor(M, lower=True, overwrite_a=True, check_finite=False)[0]
    for start in range(0, n, _WIDTH):
        stop = min(start + _WIDTH, n)
        before = M[start:stop, :start]
        own = M[start:stop, start:stop]
        own -= before @ before.T
        try:
            own[:] = scipy.linalg.cholesky(own, lower=True, check_finite=False)
        except scipy.linalg.LinAlgError as error:
            raise scipy.linalg.LinAlgError(f"from column {start} on: {error}") from None
        if stop < n:
            below = M[stop:, start:stop]
            below -= M[stop:, :start] @ before.T
            below[:] = scipy.linalg.solve_triangular(own, below.T, lower=True, check_finite=False).T
    return M
