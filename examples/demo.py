"""Compare a blend with other models on two tables, and draw its neighbours.

    python examples/demo.py

The first table is a photograph that comes with scikit-learn. A row is a pixel; its
columns are its position and its grey level, and its target is red minus blue. The
colours of 1,500 of 16,960 pixels are known. Pixels of one object have similar colours,
so other rows help to predict a row. The second table has patients with diabetes, and
other rows help little. The blend has networks with a learned graph and without one, a
linear model and boosted trees; its weights are printed. Validation rows select weights,
settings and the epoch at which training stops; the test rows are used once.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes, load_sample_image
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from torch_geometric_gsl.sklearn import GSLRegressor

HEIGHT, WIDTH, BLEND = 106, 160, 'blend'
# Pixels on a wall, the lake and a tree: positions from the left and the top.
PLACES = (60, 46), (110, 62), (152, 60)


def read_photo() -> Any:
    """Return a photograph of a palace, downsampled by means of 4 x 4 pixels."""
    photo = load_sample_image('china.jpg')[: 4 * HEIGHT].astype(float)
    return photo.reshape(HEIGHT, 4, WIDTH, 4, 3).mean(axis=(1, 3))


def make_table(photo: Any) -> tuple[Any, Any]:
    """Return the columns and the target, red minus blue, of each pixel."""
    down, right = np.indices((HEIGHT, WIDTH))
    grey = photo @ [0.299, 0.587, 0.114]
    x = np.stack([right, down, grey], axis=-1).reshape(-1, 3)
    return x, (photo[..., 0] - photo[..., 2]).ravel()


def make_models(is_held_out: Any, seed: int) -> dict[str, Any]:
    """Return the blend and its controls, which are tuned on validation rows."""
    fold = PredefinedSplit(np.where(is_held_out, 0, -1))
    knn = make_pipeline(StandardScaler(), KNeighborsRegressor(weights='distance'))
    return {
        BLEND: GSLRegressor(n_members=1, random_state=seed),
        'network without a graph': GSLRegressor('none', n_members=1, random_state=seed),
        'gradient boosting': GridSearchCV(
            HistGradientBoostingRegressor(random_state=seed),
            {'learning_rate': [0.03, 0.1, 0.2], 'max_iter': [100, 300, 1000]},
            cv=fold,
        ),
        'nearest rows': GridSearchCV(
            knn, {'kneighborsregressor__n_neighbors': [3, 5, 9, 15]}, cv=fold
        ),
    }


def compare(x: Any, y: Any, is_test: Any, seed: int = 0) -> GSLRegressor:
    """Print the errors of all models on the test rows; return the blend."""
    is_held_out = np.random.default_rng(seed).permutation(sum(~is_test)) % 5 == 0
    models = make_models(is_held_out, seed)
    print(
        f'{sum(~is_held_out):,} rows to train, {sum(is_held_out):,} to validate, '
        f'{sum(is_test):,} to test\n{"":<24}{"RMSE":>8}{"seconds":>9}'
    )
    errors = {}
    for name, model in models.items():
        began = time.perf_counter()
        is_tuned = isinstance(model, GridSearchCV)  # On the validation rows.
        options = {} if is_tuned else {'validation_mask': is_held_out}
        model.fit(x[~is_test], y[~is_test], **options)
        seconds = time.perf_counter() - began
        residual = model.predict(x[is_test]) - y[is_test]
        errors[name] = float(np.sqrt(np.mean(residual**2)))
        print(f'{name:<24}{errors[name]:>8.1f}{seconds:>9.1f}', flush=True)
    conclude(errors)
    fitted: GSLRegressor = models[BLEND]
    print(fitted)
    return fitted


def conclude(errors: dict[str, float]) -> None:
    """Print whether the blend wins, and by how much."""
    error = errors.pop(BLEND)
    best = min(errors, key=errors.__getitem__)
    share = error / errors[best] - 1
    verdict = 'wins' if share < 0 else 'does not win'
    print(
        f'The blend {verdict}: its error is {abs(share):.1%} '
        f'{"below" if share < 0 else "above"} that of the best other model '
        f'({best}).'
    )


def draw(model: GSLRegressor, photo: Any, x: Any, is_test: Any, path: Path) -> None:
    """Draw the predictions, and the training rows with most weight in three of them."""
    rows, training_rows = x[is_test], x[~is_test]
    nearest = [abs(rows[:, :2] - position).sum(axis=1).argmin() for position in PLACES]
    weights, neighbours = model.kneighbors(rows[nearest], n_neighbors=40)
    figure = Figure(figsize=(11, 4), layout='constrained')
    left, right = figure.subplots(1, 2)
    left.imshow(photo / 255)
    for i, color in enumerate(('yellow', 'magenta', 'cyan')):
        across, down = training_rows[neighbours[i], :2].T
        left.scatter(across, down, s=150 * weights[i], color=color, ec='k', lw=0.5)
        left.plot(*rows[nearest[i], :2], 'X', color=color, mec='k', ms=11)
    left.set_title('Crosses: three rows. Circles: the rows that they lean on')
    shown = model.predict(x).reshape(HEIGHT, WIDTH)
    image = right.imshow(shown, cmap='coolwarm', vmin=-100, vmax=100)
    right.set_title(f'Predicted from {len(training_rows):,} pixels')
    figure.colorbar(image, label='red minus blue', shrink=0.8)
    for ax in (left, right):
        ax.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f'{path} shows three pixels, and the rows that their predictions lean on.')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--known', type=int, default=1500, help='known pixels')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--out', type=Path, default=Path('runs/demo/photo.png'))
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)

    print('1. The colours of a photograph')
    photo = read_photo()
    x, y = make_table(photo)
    is_test = random.permutation(len(x)) >= args.known
    model = compare(x, y, is_test, args.seed)
    draw(model, photo, x, is_test, args.out)

    print('\n2. Diabetes patients')
    x, y = load_diabetes(return_X_y=True, scaled=False)
    compare(x, y, random.permutation(len(x)) % 4 == 0, args.seed)


if __name__ == '__main__':
    main()
