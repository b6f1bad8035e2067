"""Fit a model to a table, explain three predictions, and draw them on a map.

    python examples/table_explained.py
    python examples/table_explained.py --csv houses.csv --target price --map east north

It prints the members of the blend with their losses and weights, then of each
prediction what it comes from, and the rows that the learned graph looks at.

Without a file it generates houses. A price is the exponential of a sum: 200 waves over
the position, effects of area, year and kind, and noise; some years and kinds are
missing. A map needs two columns of numbers; all others may be texts.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from torch_geometric_gsl.sklearn import GSLRegressor


def make_houses(num_rows: int, seed: int = 0) -> pd.DataFrame:
    """Generate houses with their prices."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.random((num_rows, 2)), columns=['east', 'north'])
    table['area'] = rng.uniform(40, 200, num_rows).round()
    table['year'] = rng.integers(1900, 2020, num_rows)
    table['kind'] = rng.choice(['flat', 'terraced', 'detached'], num_rows)
    waves = table[['east', 'north']] @ rng.normal(0, 10, (2, 200))
    worth = 0.04 * np.cos(waves + 2 * np.pi * rng.random(200)).sum(axis=1)
    worth += 0.8 * np.log(table.area / 100) + 0.003 * (table.year - 1960)
    worth += table.kind.map({'flat': 0, 'terraced': 0.1, 'detached': 0.3})
    price = 100 * np.exp(worth + rng.normal(0, 0.08, num_rows))
    for name in ('year', 'kind'):
        table[name] = table[name].mask(rng.random(num_rows) < 0.1)
    return table.assign(price=price.round())


def draw(
    model: GSLRegressor,
    rows: pd.DataFrame,
    y: pd.Series,
    explained: pd.DataFrame,
    coordinates: list[str],
) -> Figure:
    """Draw training rows, and lines to those with most weight in predictions."""
    figure = Figure(figsize=(7, 6), layout='constrained')
    ax = figure.subplots()
    dots = ax.scatter(rows[coordinates[0]], rows[coordinates[1]], c=y, s=12)
    weights, neighbours = model.kneighbors(explained, n_neighbors=20)
    for row, house in enumerate(explained[coordinates].to_numpy()):
        sources = rows[coordinates].to_numpy()[neighbours[row]]
        for weight, source in zip(weights[row], sources, strict=True):
            ax.plot(*zip(house, source, strict=True), 'C3', linewidth=12 * weight)
        ax.plot(*house, 'o', color='C3')
    ax.set(xlabel=coordinates[0], ylabel=coordinates[1])
    figure.colorbar(dots, label=str(y.name))
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--csv', type=Path, help='a table (default: houses)')
    parser.add_argument('--target', default='price')
    parser.add_argument('--map', nargs=2, default=['east', 'north'])
    parser.add_argument('--rows', type=int, default=1000, help='number of houses')
    parser.add_argument('--graph', default='auto', choices=('auto', 'learned'))
    parser.add_argument('--out', type=Path, default=Path('table_explained.png'))
    args = parser.parse_args()
    table = make_houses(args.rows) if args.csv is None else pd.read_csv(args.csv)
    if missing := {args.target, *args.map} - {*table.columns}:
        parser.error(f'the table has no columns {sorted(missing)}: --target, --map')
    target = table.pop(args.target)
    rows, new, y, y_new = train_test_split(table, target, random_state=0)
    model = GSLRegressor(args.graph, random_state=0).fit(rows, y)
    # Gradient boosting takes categories instead of texts.
    texts = [c for c in table if not pd.api.types.is_numeric_dtype(table[c])]
    kinds = table.astype(dict.fromkeys(texts, 'category'))
    trees = HistGradientBoostingRegressor(random_state=0).fit(kinds.loc[rows.index], y)
    print(f'blend: R2 {model.score(new, y_new):.3f}')
    print(f'gradient boosting: R2 {trees.score(kinds.loc[new.index], y_new):.3f}')
    print(model.report_.round(3))
    explained = new[:3]
    for i in range(len(explained)):
        print(f'\nThe target is {y_new.iloc[i]:.4g}:')
        print(model.contributions(explained[i : i + 1]).round(1).to_string(index=False))
        print(model.explain(explained[i : i + 1]).round(2))
    draw(model, rows, y, explained, args.map).savefig(args.out, dpi=150)
    print(f'\nWritten: {args.out}')


if __name__ == '__main__':
    main()
