"""What a user would otherwise pick, on the same rows: scikit-learn, tuned by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, SVR
from task_data import Inputs, Task, gp_rows
from task_scores import Clock, Row, class_row, real_row

WEIGHTS = [1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0]


def classes(task: Task) -> Iterator[Row]:
    """Rows of a classification task."""
    train, test = task.parts[0]
    methods: dict[str, Callable] = {
        "logistic regression": _logistic,
        "SVC, RBF": _svc,
        "gradient boosting": _boosting,
        "GP classifier, RBF": _gpc,
    }
    label = ", mean vector" if task.kind == "text" else ""
    for method, run in methods.items():
        yield _row(method + label, run, train.flat, train.y, test.flat, test.y)
    if train.words is not None:
        yield _row("tf-idf + logistic regression", _tfidf, train.words, train.y, test.words, test.y)
    pairs = {
        "logistic regression, mean vector, whole text": (_logistic, "whole_flat"),
        "tf-idf + logistic regression, whole text": (_tfidf, "whole"),
    }
    for method, (run, field) in pairs.items():
        x, x_test = getattr(train, field), getattr(test, field)
        if x is not None:
            yield _row(method, run, x, train.y, x_test, test.y)


def _row(method: str, run: Callable, x, y, x_test, y_test) -> Row:
    clock = Clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        P, settings = run(x, y, x_test)
    return class_row("peer", method, P, y_test, clock.read(), settings)


def _logistic(x, y, x_test):
    search = GridSearchCV(
        LogisticRegression(max_iter=500), {"C": WEIGHTS}, scoring="neg_log_loss", cv=5
    )
    search.fit(x, y)
    return search.predict_proba(x_test), f"C {search.best_params_['C']:g}"


def _svc(x, y, x_test):
    unit = 1 / (x.shape[1] * x.var())
    grid = {"C": [0.3, 1.0, 3.0, 10.0, 30.0], "gamma": [unit * s for s in (0.1, 0.3, 1.0, 3.0)]}
    best = GridSearchCV(SVC(), grid, cv=5).fit(x, y).best_params_
    search = GridSearchCV(
        CalibratedClassifierCV(SVC(**best), cv=5, ensemble=False),
        {"method": ["sigmoid", "temperature"]},
        scoring="neg_log_loss",
        cv=3,
    ).fit(x, y)
    how = search.best_params_["method"]
    settings = f"C {best['C']:g}, gamma {best['gamma'] / unit:g} / (d var), {how} scaling"
    return search.predict_proba(x_test), settings


def _boosting(x, y, x_test):
    model = HistGradientBoostingClassifier(
        max_iter=300, early_stopping=True, validation_fraction=0.15, random_state=0
    ).fit(x, y)
    return model.predict_proba(x_test), f"{model.n_iter_} rounds by early stopping"


def _gpc(x, y, x_test):
    rows = gp_rows(len(np.unique(y)))
    kernel = ConstantKernel(1.0, (1e-3, 1e5)) * RBF(np.sqrt(x.shape[1]), (1e-2, 1e4))
    model = GaussianProcessClassifier(kernel, random_state=0).fit(x[:rows], y[:rows])
    return model.predict_proba(x_test), f"the first {min(rows, len(y))} training rows"


def _tfidf(x, y, x_test):
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
    search = GridSearchCV(
        make_pipeline(words, LogisticRegression(max_iter=500)),
        {"logisticregression__C": [1.0, 10.0, 100.0, 1000.0]},
        scoring="neg_log_loss",
        cv=5,
    ).fit(x, y)
    chosen = search.best_params_["logisticregression__C"]
    return search.predict_proba(x_test), f"words and pairs of words, C {chosen:g}"


def real(task: Task) -> Iterator[Row]:
    """Rows of a regression task."""
    methods: dict[str, tuple[Callable, str]] = {
        "Bayesian ridge regression": (_ridge, "its own deviations"),
        "SVR, RBF": (_svr, "one deviation, of cross-validated residuals"),
        "gradient boosting": (_boosted, "one deviation, of cross-validated residuals"),
        "GP regressor, RBF": (_gpr, "a length for each column, by the evidence"),
    }
    for method, (run, settings) in methods.items():
        clock = Clock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = [run(train, test) for train, test in task.parts]
        mean, std = (np.concatenate([fold[i] for fold in found]) for i in (0, 1))
        yield real_row("peer", method, mean, std, task, clock.read(), settings)


def _ridge(train: Inputs, test: Inputs):
    return BayesianRidge().fit(train.flat, train.y).predict(test.flat, return_std=True)


def _svr(train: Inputs, test: Inputs):
    unit = 1 / train.flat.shape[1]
    grid = {
        "C": [0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
        "gamma": [unit * s for s in (0.03, 0.1, 0.3, 1.0)],
        "epsilon": [0.05, 0.3],
    }
    return _searched(SVR(), grid, train, test)


def _boosted(train: Inputs, test: Inputs):
    model = HistGradientBoostingRegressor(learning_rate=0.05, early_stopping=False, random_state=0)
    grid = {"max_iter": [50, 150], "max_leaf_nodes": [4, 16]}
    return _searched(model, grid, train, test)


def _searched(model, grid: dict, train: Inputs, test: Inputs):
    search = GridSearchCV(model, grid, scoring="neg_mean_squared_error", cv=5)
    search.fit(train.flat, train.y)
    left_out = cross_val_predict(search.best_estimator_, train.flat, train.y, cv=5)
    deviation = np.sqrt(np.mean((left_out - train.y) ** 2))
    return search.predict(test.flat), np.full(len(test.y), deviation)


def _gpr(train: Inputs, test: Inputs):
    lengths = np.full(train.flat.shape[1], np.sqrt(train.flat.shape[1]))
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(lengths, (1e-1, 1e4)) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, random_state=0).fit(train.flat, train.y)
    return model.predict(test.flat, return_std=True)
