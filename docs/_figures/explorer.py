"""Write a page of the digits' graphs, take its pictures, and time its drawing.

    python docs/_figures/explorer.py

It needs Chromium, its driver and selenium. Pictures go to `docs/_static/explorer/`; the
last lines are the size of the page, and how long a frame takes that draws 50,000 edges.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from selenium import webdriver
from sklearn.datasets import load_digits
from torch_geometric.data import Data

from torch_geometric_gsl.sklearn import GSLClassifier, GSLNeighborsTransformer
from torch_geometric_gsl.visualization import explore

STATIC = Path(__file__).resolve().parents[1] / '_static' / 'explorer'
SIZES = {'wide': (1400, 900), 'narrow': (420, 800)}
#: Of the graph that is timed.
NODES, EDGES, FRAMES = 5_000, 50_000, 40
#: Move the camera once a frame; tell the milliseconds of all frames.
TIMED = """
const done = arguments[arguments.length - 1];
const { sigma } = explorer.views[0];
const spent = [];
let number = 0;
function step() {
  const begin = performance.now();
  sigma.getCamera().setState({ angle: 0.01 * number });
  sigma.render();
  const gl = sigma.getCanvases().edges.getContext('webgl2');
  gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
  spent.push(performance.now() - begin);
  number += 1;
  if (number < %d) requestAnimationFrame(step); else done(spent);
}
requestAnimationFrame(step);
"""


def digits_page(path: Path) -> Path:
    """Explore what a classifier of digits learned beside their nearest neighbours."""
    x, y = load_digits(return_X_y=True)
    some = y.copy()
    some[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[:-100]] = -1
    model = GSLClassifier('learned', random_state=0).fit(x, some)
    nearest = GSLNeighborsTransformer(n_neighbors=5, random_state=0).fit_transform(x)
    return explore(
        {'learned': model.graph_, 'nearest': nearest},
        data=Data(x=torch.tensor(x), y=torch.tensor(y)),
        prediction=torch.tensor(model.predict(x)),
        images=torch.tensor(x).view(-1, 8, 8),
        names=[f'digit {number}' for number in range(len(y))],
        feature_names=[f'pixel {i // 8}, {i % 8}' for i in range(64)],
        title='Handwritten digits, 100 of them labelled',
        path=path,
    )


def open_browser() -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which('chromium') or ''
    for argument in (
        '--headless=new',
        '--no-sandbox',
        '--use-angle=swiftshader',
        '--enable-unsafe-swiftshader',
        '--hide-scrollbars',
    ):
        options.add_argument(argument)
    service = webdriver.ChromeService(shutil.which('chromedriver'))
    return webdriver.Chrome(options=options, service=service)


def take_pictures(browser: Any, page: Path) -> None:
    """Show a digit and its neighbours, and the graphs side by side."""
    for name, (width, height) in SIZES.items():
        size = {'width': width, 'height': height}
        device = size | {'deviceScaleFactor': 1, 'mobile': False}
        browser.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', device)
        browser.get(page.as_uri())
        time.sleep(8)  # Nodes are being arranged.
        browser.save_screenshot(str(STATIC / f'{name}.png'))
        browser.execute_script('explorer.choose(17); explorer.views[0].goTo(17)')
        time.sleep(1)
        browser.execute_script(
            'explorer.views[0].sigma.getCamera().animate({ ratio: 0.12 })'
        )
        time.sleep(1)
        browser.save_screenshot(str(STATIC / f'{name}_node.png'))
    browser.execute_cdp_cmd(
        'Emulation.setDeviceMetricsOverride',
        {'width': 1400, 'height': 900, 'deviceScaleFactor': 1, 'mobile': False},
    )
    browser.execute_script('explorer.choose(null); explorer.compare()')
    browser.execute_script('explorer.views[0].sigma.getCamera().animatedReset()')
    time.sleep(2)
    browser.save_screenshot(str(STATIC / 'compare.png'))


def time_frames(browser: Any, folder: Path) -> list[float]:
    """Return the milliseconds of frames of a random graph, in their order."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(NODES, (2, EDGES), generator=generator)
    weight = torch.rand(EDGES, generator=generator)
    pos = torch.randn(NODES, 2, generator=generator)
    page = explore((edge_index, weight), data=Data(pos=pos), path=folder / 'many.html')
    browser.get(page.as_uri())
    time.sleep(3)
    browser.set_script_timeout(300)
    found: list[float] = browser.execute_async_script(TIMED % FRAMES)
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    STATIC.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        page = digits_page(Path(folder) / 'digits.html')
        take_pictures(browser, page)
        print(f'page of {page.stat().st_size / 1e6:.2f} MB')
        frames = time_frames(browser, Path(folder))
        log = browser.get_log('browser')
    middle, slow = frames[len(frames) // 2], frames[int(0.95 * len(frames))]
    print(
        f'{EDGES:,} edges, drawn by software: {middle:.0f} ms a frame, 95 % {slow:.0f}'
    )
    print(f'messages of the browser: {log}')


if __name__ == '__main__':
    main()
