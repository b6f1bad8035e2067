"""Write a page of the digits' graphs, take its pictures, and time its drawing.

    python docs/_figures/explorer.py

It needs Chromium, its driver and selenium. Pictures go to `docs/_static/explorer/`.
Then it prints the sizes of pages, and the time of a frame with 50,000 edges.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from selenium import webdriver
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch_geometric.data import Data

from torch_geometric_gsl.sklearn import GSLClassifier
from torch_geometric_gsl.visualization import explore

STATIC = Path(__file__).resolve().parents[1] / '_static' / 'explorer'
SIZE = {'width': 1400, 'height': 900, 'deviceScaleFactor': 1, 'mobile': False}
#: Sizes of the timed graph, and the number of timed frames.
NODES, EDGES, FRAMES = 5_000, 50_000, 15
#: Act once per frame, and return the milliseconds of all frames. Reading a pixel waits
#: until the frame is drawn.
TIMED = """
const [kind, done] = arguments;
const { sigma } = explorer.views[0];
const drawing = ['edges', 'nodes'].map(
  (name) => sigma.getCanvases()[name].getContext('webgl2'));
const pixel = new Uint8Array(4);
const act = {
  'moving the camera': (i) => {
    sigma.getCamera().setState({ angle: 0.01 * i });
    sigma.render();
  },
  'pointing at a node': (i) => explorer.point(i),
  'moving the threshold': (i) => explorer.hideBelow(0.01 * i),
}[kind];
const spent = [];
function step() {
  const begin = performance.now();
  act(spent.length);
  drawing.forEach((gl) => gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel));
  spent.push(performance.now() - begin);
  if (spent.length < FRAMES) requestAnimationFrame(step);
  else { explorer.choose(null); done(spent); }
}
step();
""".replace('FRAMES', str(FRAMES))
KINDS = ('moving the camera', 'pointing at a node', 'moving the threshold')
#: Disable all drawing by a graphics processor.
UNDRAWN = """
const type = WebGL2RenderingContext.prototype;
for (const name of ['drawArrays', 'drawElements']) {
  type[name] = () => {};
  type[`${name}Instanced`] = () => {};
}
"""


def digits_page(path: Path) -> Path:
    """Write a page of two graphs of digits: learned, and of the nearest neighbours."""
    x, y = load_digits(return_X_y=True)
    labels = y.copy()
    labels[
        torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[:-100]
    ] = -1
    model = GSLClassifier('learned', random_state=0).fit(x, labels)
    nearest = kneighbors_graph(x, 5, mode='distance', metric='cosine')
    return explore(
        {'learned': model.graph_, 'nearest': nearest},
        data=Data(x=torch.tensor(x), y=torch.tensor(y)),
        prediction=torch.tensor(model.transduction_),
        images=torch.tensor(x).view(-1, 8, 8),
        names=[f'image {i}' for i in range(len(y))],
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


def save_picture(browser: Any, name: str) -> None:
    """Save a screenshot in 256 colours, a third of its size."""
    picture = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert('RGB')
    # Colours of the whole range, not only the most frequent ones.
    method = Image.Quantize.MAXCOVERAGE
    few = picture.quantize(256, method=method, dither=Image.Dither.NONE)
    few.save(STATIC / f'{name}.png', optimize=True)


def take_pictures(browser: Any, page: Path) -> None:
    """Save pictures of the graph, and of both graphs side by side."""
    browser.get(page.as_uri())
    time.sleep(10)  # Wait for the layout of nodes.
    save_picture(browser, 'wide')
    browser.execute_script('explorer.compare()')
    browser.execute_script('explorer.views[0].sigma.getCamera().animatedReset()')
    time.sleep(3)
    save_picture(browser, 'compare')


def time_frames(browser: Any, folder: Path) -> dict[str, dict[str, list[float]]]:
    """Measure the milliseconds of frames, sorted, with and without drawing."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(NODES, (2, EDGES), generator=generator)
    weight = torch.rand(EDGES, generator=generator)
    pos = torch.randn(NODES, 2, generator=generator)
    page = explore((edge_index, weight), data=Data(pos=pos), path=folder / 'many.html')
    print(f'page of {EDGES:,} edges: {page.stat().st_size / 1e6:.2f} MB')
    browser.get(page.as_uri())
    time.sleep(5)
    browser.set_script_timeout(600)
    times = {}
    for how in ('drawn by software', 'without drawing'):
        times[how] = {
            frame: sorted(browser.execute_async_script(TIMED, frame)) for frame in KINDS
        }
        browser.execute_script(UNDRAWN)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--only', choices=('pictures', 'times'))
    args = parser.parse_args()
    STATIC.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        browser.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', SIZE)
        if args.only != 'times':
            page = digits_page(Path(folder) / 'digits.html')
            print(f'page of digits: {page.stat().st_size / 1e6:.2f} MB')
            take_pictures(browser, page)
        if args.only == 'pictures':
            return
        times = time_frames(browser, Path(folder))
        log = browser.get_log('browser')
    print(f'\n{"milliseconds a frame":<24}{"":<20}{"least":>8}{"median":>8}')
    for how, kinds in times.items():
        for frame, spent in kinds.items():
            middle = spent[len(spent) // 2]
            print(f'{frame:<24}{how:<20}{spent[0]:>8.0f}{middle:>8.0f}')
    print(f'messages of the browser: {log}')


if __name__ == '__main__':
    main()
