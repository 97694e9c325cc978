"""What the stored run of the task benchmark says, in words."""

CONCLUSIONS = """\
- **Loses: IMDb.** tf-idf with logistic regression on whole reviews has accuracy 0.840 and NLL
  0.349, our best 0.763 and 0.476. With the same first 60 tokens it also has the better numbers
  (0.702 and 0.577 against 0.687 and 0.592 of convolutions, about one standard error). Much of it
  is the input: logistic regression on the same mean vectors has what our kernel on them has (0.764
  and 0.763).
- **Ahead: digits.** Convolutions with attention make 3 errors in 797 where the SVC makes 7, which
  is just two standard errors; the likelihood is clearly better (0.012 against 0.058).
- **Ahead: CIFAR-10** at 8 x 8 pixels from 1000 images. Convolutions with attention have accuracy
  0.445 and NLL 1.597, the best peer (SVC) 0.395 and 1.834, convolutions alone 0.421 and 1.695.
- **Ahead: TREC on the states of a pretrained transformer** (trec6-minilm). The kernel that sees
  the tokens has accuracy 0.930 and NLL 0.255, logistic regression on their mean, which is how such
  models are used, 0.860 and 0.464. Windows of three tokens carry it (0.928 without attention). On
  SST-2 and IMDb the states' mean has all there is: ours and the peers are even. What pretraining
  brings is larger than what any method here does: 0.834 to 0.930 on TREC, 0.757 to 0.785 on SST-2;
  on IMDb nothing against tf-idf on whole reviews.
- **Even: TREC, diabetes, cells**, and SST-2 in accuracy: the best peer and ours differ by less than
  two standard errors in accuracy or R2, and in NLL. On SST-2 our NLL is lower by 0.013 ± 0.005. On
  both regression sets the best peer is the RBF Gaussian process with a length for each column.
- **Attention** halves the NLL of convolutions alone on digits (0.022 to 0.012) and lowers it a
  little on TREC (0.528 to 0.509, less than its error); on SST-2 it changes nothing, and on the 60
  tokens of IMDb it does not help (0.589 to 0.596).
- **NNGP and NTK** of one network differ by about a standard error at most.
- **Laplace** has too few rows here to compete with the regression rows. On the same few rows it
  has a better NLL than scikit-learn's classifier on digits and TREC, where that one is far too
  unsure (ECE 0.54 and 0.24); on SST-2 and IMDb they are alike.
- **Intervals** of ours that should hold 90% of the targets hold 88.6 to 91.2%, those of 50% hold
  46.8 to 54.1%.
- **The ridge** of digits ends at the edge of its grid, 1e-7: there is no noise to be found there.
- **Time** is the price. Kernels of 8 x 8 images with attention took 145 CPU seconds for 1000
  training and 797 test images; the SVC took 3.
- The evidence row of diabetes was timed before gradients compiled once; that of cells after.
"""
