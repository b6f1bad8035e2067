"""Compare the estimators with those of scikit-learn, by cross-validation.

    python examples/estimators.py
    python examples/estimators.py --tables wine --folds 10

Each model is fitted with its defaults (networks with more epochs) to standardised
columns, on the same folds. The table shows accuracies, or the coefficient of
determination for `diabetes`. The blend contains networks with and without a graph, a
linear model and boosted trees.
"""

import argparse
import time
import warnings

from sklearn import datasets
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tqdm import tqdm

from torch_geometric_gsl.sklearn import GSLClassifier, GSLRegressor

TABLES = {
    'wine': datasets.load_wine,
    'digits': datasets.load_digits,
    'breast_cancer': datasets.load_breast_cancer,
    'diabetes': datasets.load_diabetes,
}
CLASSIFIERS = {
    'linear (logistic, ridge)': LogisticRegression(max_iter=1000),
    'random forest': RandomForestClassifier(random_state=0),
    'gradient boosting': HistGradientBoostingClassifier(random_state=0),
    'MLP': MLPClassifier(max_iter=500, random_state=0),
    'k nearest neighbours': KNeighborsClassifier(),
    'GSL, learned graph': GSLClassifier('learned', random_state=0),
    'GSL, no graph': GSLClassifier('none', random_state=0),
    'GSL, blend': GSLClassifier(random_state=0),
}
REGRESSORS = {
    'linear (logistic, ridge)': Ridge(),
    'random forest': RandomForestRegressor(random_state=0),
    'gradient boosting': HistGradientBoostingRegressor(random_state=0),
    'MLP': MLPRegressor(max_iter=500, random_state=0),
    'k nearest neighbours': KNeighborsRegressor(),
    'GSL, learned graph': GSLRegressor('learned', random_state=0),
    'GSL, no graph': GSLRegressor('none', random_state=0),
    'GSL, blend': GSLRegressor(random_state=0),
}


def measure(table: str, model: str, folds: int) -> tuple[float, float, float]:
    """Return the mean and standard deviation of scores, and the seconds per fold."""
    x, y = TABLES[table](return_X_y=True)
    is_regression = table == 'diabetes'
    splitter_type = KFold if is_regression else StratifiedKFold
    estimator = (REGRESSORS if is_regression else CLASSIFIERS)[model]
    pipeline = make_pipeline(StandardScaler(), estimator)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        cv = splitter_type(folds, shuffle=True, random_state=0)
        scores = cross_val_score(pipeline, x, y, cv=cv)
    seconds = (time.perf_counter() - started) / folds
    return float(scores.mean()), float(scores.std(ddof=1)), seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--tables', nargs='+', choices=TABLES, default=list(TABLES))
    parser.add_argument('--folds', type=int, default=5)
    args = parser.parse_args()
    if args.folds < 2:
        parser.error(f'--folds must be at least 2 (got {args.folds})')
    print('| | ' + ' | '.join(args.tables) + ' |')
    print('| --- |' + ' --- |' * len(args.tables))
    for model in tqdm(CLASSIFIERS, leave=False):
        cells = []
        for table in args.tables:
            mean, deviation, seconds = measure(table, model, args.folds)
            cells.append(f'{mean:.3f} ± {deviation:.3f} ({seconds:.1f} s)')
        tqdm.write(f'| {model} | ' + ' | '.join(cells) + ' |')


if __name__ == '__main__':
    main()
