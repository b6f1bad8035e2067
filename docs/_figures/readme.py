"""Draw the README's picture, from a real fit, into `docs/_static/readme.png`.

It shows the prediction for one district near San Francisco, with lines to the training
rows of largest weight. `GSL_DATA` is the folder with the California housing table.

    python docs/_figures/readme.py
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from reproduction.tables_data import california
from torch_geometric_gsl.sklearn import GSLRegressor

OUT = Path(__file__).resolve().parents[1] / '_static' / 'readme.png'
#: Longitude and latitude.
WEST, EAST, SOUTH, NORTH = -122.62, -121.6, 37.2, 38.15
#: The test row that is shown, and the degrees that the right map covers around it.
ROW, REACH = 471, 0.088
LINES, LISTED = 10, 3
CITIES = {
    'San Francisco': (-122.6, 37.82),
    'Oakland': (-122.18, 37.83),
    'San Jose': (-121.86, 37.21),
}
#: A degree of longitude is shorter than one of latitude here.
ASPECT = 1 / np.cos(np.radians(37.7))
HEAD = ('', 'weight', 'value, $', 'income, $', 'age', 'rooms', 'people')
DARK, RED, PALE = '#1f2328', '#cf222e', '#d0d7de'


def districts():
    x, y = california()[:2]
    longitude, latitude = x[:, 7], x[:, 6]
    inside = (longitude > WEST) & (longitude < EAST)
    inside &= (latitude > SOUTH) & (latitude < NORTH)
    x, y = x[inside], y[inside]
    order = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(order, [3 * len(y) // 4])
    return (x[train], y[train]), (x[test], y[test])


def fit(rows, file):
    if file is not None and file.exists():
        return GSLRegressor.load(file)
    model = GSLRegressor('learned', n_members=1, random_state=0).fit(*rows)
    if file is not None:
        model.save(file)
    return model


def draw_points(ax, x, y, size):
    ax.set(xticks=[], yticks=[], aspect=ASPECT)
    for spine in ax.spines.values():
        spine.set_color(PALE)
    style = {'cmap': 'viridis', 'vmin': 0.5, 'vmax': 5, 'linewidths': 0}
    return ax.scatter(x[:, 7], x[:, 6], c=y, s=size, **style)


def cells(x):
    """Format the listed columns of a row."""
    return [f'{1e4 * x[0]:,.0f}', f'{x[1]:.0f}', f'{x[2]:.1f}', f'{x[5]:.1f}']


def draw(rows, new, predicted, weights, neighbours):
    (x, y), (district, value) = rows, new
    figure = Figure(figsize=(7, 5.3), facecolor='white')
    left = figure.add_axes((0.015, 0.31, 0.41, 0.62))
    right = figure.add_axes((0.438, 0.31, 0.46, 0.62))
    scale = figure.add_axes((0.91, 0.36, 0.018, 0.5))
    draw_points(left, x, y, 2.5)
    dots = draw_points(right, x, y, 26)
    at, up = district[7], district[6]
    for name, pos in CITIES.items():
        text = left.annotate(name, pos, fontsize=8, color=DARK)
        text.set_path_effects([withStroke(linewidth=3, foreground='white')])
    box = Rectangle(
        (at - REACH, up - REACH / ASPECT), 2 * REACH, 2 * REACH / ASPECT,
        fill=False, edgecolor=RED, linewidth=1.5,
    )  # fmt: skip
    left.add_patch(box)
    for weight, near in zip(weights, x[neighbours], strict=True):
        ends = [at, near[7]], [up, near[6]]
        right.plot(*ends, color=RED, linewidth=0.8 + 12 * weight, alpha=0.75, zorder=0)
    right.scatter(at, up, marker='*', s=260, color=RED, edgecolor='white', zorder=3)
    right.set(xlim=(at - REACH, at + REACH))
    right.set(ylim=(up - REACH / ASPECT, up + REACH / ASPECT))
    title = {'fontsize': 9.5, 'color': DARK}
    left.set_title(f'{len(y):,} districts near San Francisco', **title)
    right.set_title(f'a new district, and the {LINES} rows with most weight', **title)
    bar = figure.colorbar(dots, cax=scale, ticks=[1, 2, 3, 4, 5])
    bar.ax.set_yticklabels(['100k', '200k', '300k', '400k', '500k'], fontsize=8)
    bar.ax.set_title('house\nvalue, $', fontsize=8, color=DARK, loc='left')
    bar.outline.set_visible(False)
    lines = [['★ predicted', '', f'{1e5 * predicted:,.0f}', *cells(district)]]
    for rank in range(LISTED):
        near = neighbours[rank]
        values = f'{weights[rank]:.2f}', f'{1e5 * y[near]:,.0f}'
        lines.append([f'training row {near}', *values, *cells(x[near])])
    draw_lines(figure.add_axes((0.015, 0.01, 0.97, 0.27)), [HEAD, *lines])
    note = f'Its true value is {1e5 * value:,.0f}.'
    figure.text(0.985, 0.012, note, ha='right', fontsize=8.5, color=DARK)
    figure.savefig(OUT, dpi=200)


def draw_lines(ax, lines):
    ax.set_axis_off()
    ax.set(xlim=(0, 1), ylim=(len(lines) + 0.6, -0.2))
    places = (0, 0.34, 0.50, 0.66, 0.76, 0.87, 1.0)
    for i, line in enumerate(lines):
        color = RED if i == 1 else DARK
        weight = 'bold' if i <= 1 else 'normal'
        for x, word in zip(places, line, strict=True):
            side = 'right' if x else 'left'
            style = {'ha': side, 'va': 'center', 'fontsize': 9.5, 'fontweight': weight}
            ax.text(x, i + 0.3, word, color=color, **style)
    ax.axhline(0.8, color=PALE, linewidth=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--model', type=Path, help='file of the fitted model')
    file = parser.parse_args().model
    rows, (x, y) = districts()
    model = fit(rows, file)
    weights, neighbours = model.kneighbors(x[ROW : ROW + 1], LINES)
    predicted = model.predict(x[ROW : ROW + 1])[0]
    print(f'R2 {model.score(x, y):.2f}, ten weights sum to {weights.sum():.2f}')
    draw(rows, (x[ROW], y[ROW]), predicted, weights[0], neighbours[0])


if __name__ == '__main__':
    main()
