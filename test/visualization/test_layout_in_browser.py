"""Nothing of the page that `explore` writes is cut, in Chromium without a window."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_gsl import GSLNet

pytestmark = pytest.mark.slow
N = 40
#: What is wider than the window or than its own box, and divided numbers.
CUT = """
const cut = document.documentElement.scrollWidth > innerWidth ? ['the page'] : [];
const range = document.createRange();
for (const found of document.querySelectorAll('body *')) {
  if (!found.checkVisibility() || found.closest('.stage, script')) continue;
  const { left, right } = found.getBoundingClientRect();
  const isInline = getComputedStyle(found).display === 'inline';
  const isWide = !isInline && found.scrollWidth > found.clientWidth + 1;
  let isDivided = false;
  if (found.className === 'number') {
    range.selectNodeContents(found.lastChild);  // Its text.
    isDivided = range.getClientRects().length > 1;
  }
  if (isWide || isDivided || left < -0.5 || right > innerWidth + 0.5) {
    cut.push(`${found.tagName} ${found.id} ${found.className} ${found.textContent}`);
  }
}
return cut;
"""
COLOUR = """
const choice = document.getElementById('colour');
choice.value = arguments[0];
choice.dispatchEvent(new Event('change'));
"""
COLUMNS = [
    np.random.default_rng(0).normal(size=N) * 10.0 ** np.arange(-20, 20),
    1.7e9 + 1e-6 * np.arange(N),
    -1.2345678901234567e300 * np.arange(1, N + 1),
]


def hard_page():
    """Long names, and numbers of many digits, of either sign and of any size."""
    edges = torch.stack([torch.arange(N).repeat(3), torch.randint(N, (3 * N,))])
    graph = edges, 10 ** -torch.linspace(0, 13.77, 3 * N)
    classes = ['without_a_blank' * 9, 'of many words that wrap ' * 9, 'short']
    return {'a graph of a long name ' * 9: graph, 'b': graph}, {
        'data': Data(y=[classes[i % 3] for i in range(N)]),
        'prediction': -1.23456789012345e-300 * torch.arange(N, dtype=torch.double),
        'columns': {
            f'{"column" * (i % 9)} a column {i}': COLUMNS[i % 3] for i in range(60)
        },
        'max_features': 60,
        'names': [f'{"name" * (i % 9)} {i / 7:.17f}' for i in range(N)],
        'target_name': 'a_target_of_a_long_name' * 9,
        'new_mask': torch.arange(N) >= N - 5,
        'title': 'A title of many words ' * 9,
    }


def plain_page():
    data = Data(x=torch.randn(N, 3), y=torch.arange(N) % 2)
    return GSLNet(3, 8, 2, 2), {'data': data}


@pytest.mark.parametrize('theme', ['light', 'dark'])
@pytest.mark.parametrize('width', [1400, 420])
@pytest.mark.parametrize('make', [hard_page, plain_page])
def test_nothing_is_cut(visit, browser, make, width, theme):
    size = {'width': width, 'height': 800, 'deviceScaleFactor': 1}
    scheme = {'name': 'prefers-color-scheme', 'value': theme}
    device = size | {'mobile': width < 700}
    browser.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', device)
    browser.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': [scheme]})
    try:
        graph, kwargs = make()
        page = visit(graph, **kwargs)
        root = 'document.documentElement'
        assert page.execute_script(f'return {root}.dataset.theme') == theme
        for act in (
            '',
            'explorer.choose(0)',
            f'explorer.choose({N - 1})',
            'explorer.compare()',
        ):
            page.execute_script(act)
            assert page.execute_script(CUT) == []
        for i, colour in enumerate(page.execute_script('return explorer.data.colours')):
            page.execute_script(COLOUR, str(i))
            assert page.execute_script(CUT) == [], colour['name']
    finally:
        browser.execute_cdp_cmd('Emulation.clearDeviceMetricsOverride', {})
        browser.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': []})
