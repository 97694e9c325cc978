"""The token kernel, the three passes over a network, and Gram matrices."""
