"""Published results, computed again: the tables of Hron et al. (2020)."""
