"""A click-through of the page that `explore` writes, in Chromium without a window."""

import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_gsl.visualization import explore

NAMES = ['zero', 'one', '<img src=x onerror="window.hit=1">', 'three', 'four', 'five']
NOTHING_POINTED_AT = 'Point at a node'


@pytest.fixture
def page(browser, tmp_path):
    """Open a page of two graphs on six nodes, which stand on a grid."""
    first = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 0, 0, 5]])
    second = torch.tensor([[5, 4], [0, 0]])
    graphs = {
        'layer 1': (first, torch.tensor([0.9, 0.5, 0.3, 0.1, 0.7])),
        '</script><b>layer 2': (second, torch.tensor([0.2, 0.8])),
    }
    data = Data(
        x=torch.arange(12.0).view(6, 2),
        y=torch.tensor([0, 0, 1, 1, 2, -1]),
        pos=torch.tensor([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1.0]]),
    )
    images = torch.zeros(6, 2, 3, 3, dtype=torch.uint8)
    images[1, ..., 0] = 255
    path = explore(
        graphs,
        data=data,
        prediction=torch.tensor([0, 1, 1, 1, 2, 2]),
        images=images,
        names=NAMES,
        class_names=['red', '<i>green', 'blue'],
        title='A <b>title</b> & more',
        path=tmp_path / 'graph.html',
    )
    browser.set_window_size(1400, 900)
    browser.get_log('browser')
    browser.get(path.as_uri())
    wait(browser, "return document.body.dataset.ready === 'true'")
    yield browser
    # Neither an error of the page nor anything that it wanted from elsewhere.
    assert browser.get_log('browser') == []
    assert browser.execute_script('return window.hit === undefined')


def wait(browser, script):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 60).until(lambda b: b.execute_script(script))


def find(page, selector):
    return page.find_element('css selector', selector)


def point_at(page, node):
    """Move the mouse over a node of the first drawing, and return the action."""
    from selenium.webdriver.common.action_chains import ActionChains

    x, y = page.execute_script(
        """
        const { sigma } = explorer.views[0];
        const data = sigma.getNodeDisplayData(arguments[0]);
        const place = sigma.framedGraphToViewport(data);
        const box = sigma.getContainer().getBoundingClientRect();
        return [Math.round(box.left + place.x), Math.round(box.top + place.y)];
        """,
        str(node),
    )
    action = ActionChains(page)
    action.w3c_actions.pointer_action.move_to_location(x, y)
    return action


def hover(page, node):
    point_at(page, node).perform()
    wait(page, f'return explorer.focus === {node}')
    return find(page, '#node').text


def shown_edges(page, view=0):
    return set(
        page.execute_script(
            f"""
            const view = explorer.views[{view}];
            return view.graph.filterEdges(
                (edge) => !view.sigma.getEdgeDisplayData(edge).hidden);
            """
        )
    )


def test_names_are_text(page):
    assert page.title == find(page, 'h1').text == 'A <b>title</b> & more'
    options = [
        o.text for o in find(page, '#first .graph').find_elements('tag name', 'option')
    ]
    assert options == ['layer 1', '</script><b>layer 2']
    assert '<i>green' in find(page, '#legend').text
    text = hover(page, 2)
    assert NAMES[2] in text
    assert not page.find_elements('css selector', '#node img, #legend i > i, b b')


def test_a_node_that_is_pointed_at(page):
    assert NOTHING_POINTED_AT in find(page, '#node').text
    lines = hover(page, 0).splitlines()
    assert lines[0] == 'zero'
    assert 'draws from (2)' in lines
    # The source of the larger weight comes first; a line may hold name and weight.
    listed = ' '.join(lines[lines.index('draws from (2)') + 1 :])
    assert listed.index(NAMES[2]) < listed.index('three')
    assert '0.3' in listed.partition('three')[0]
    assert 'is drawn by (1)' in lines
    assert len(shown_edges(page)) == 3
    pixel = page.execute_script(
        "return [...document.querySelector('#node canvas').getContext('2d')"
        '.getImageData(0, 0, 1, 1).data]'
    )
    assert pixel == [0, 0, 0, 255]
    hover(page, 1)
    pixel = page.execute_script(
        "return [...document.querySelector('#node canvas').getContext('2d')"
        '.getImageData(2, 1, 1, 1).data]'
    )
    assert pixel == [255, 0, 0, 255]


def test_a_click_keeps_a_node_and_another_lets_it_go(page):
    point_at(page, 4).click().perform()
    wait(page, 'return explorer.chosen === 4')
    assert find(page, '#node h2').text == 'four'
    facts = find(page, '#node dl').text.splitlines()
    assert facts[:4] == ['label', 'blue', 'prediction', 'blue']
    find(page, '#fit').click()
    wait(page, 'return explorer.focus === null')
    assert NOTHING_POINTED_AT in find(page, '#node').text


def test_a_node_is_found_by_its_name(page):
    from selenium.webdriver.common.keys import Keys

    search = find(page, '#search')
    search.send_keys('f')
    found = [b.text for b in find(page, '#matches').find_elements('tag name', 'button')]
    assert found == ['four', 'five']
    search.send_keys('ive', Keys.ENTER)
    wait(page, 'return explorer.chosen === 5')
    assert find(page, '#node h2').text == 'five'
    assert not find(page, '#matches').is_displayed()
    search.send_keys('!')
    assert find(page, '#matches').text == 'no such node'
    # The neighbour in the list is a way to that neighbour.
    find(page, '#node li button').click()
    wait(page, 'return explorer.chosen === 4')
    camera = page.execute_script('return explorer.views[0].sigma.getCamera().ratio')
    assert camera <= 1


def test_the_threshold_hides_weak_edges(page):
    assert find(page, '#first .count').text == '6 nodes, 5 of 5 edges'
    page.execute_script(
        """
        const slider = document.getElementById('threshold');
        slider.value = 500;
        slider.dispatchEvent(new Event('input'));
        """
    )
    assert find(page, '#least').text == '0.45'
    assert find(page, '#first .count').text == '6 nodes, 3 of 5 edges'
    assert len(shown_edges(page)) == 3
    assert 'draws from (0)' in hover(page, 0)


def test_colours(page):
    from selenium.webdriver.support.ui import Select

    def colour(node):
        return page.execute_script(
            f"return explorer.views[0].sigma.getNodeDisplayData('{node}').color"
        )

    choice = Select(find(page, '#colour'))
    names = [option.text for option in choice.options]
    assert names == ['label', 'prediction', 'feature 0', 'feature 1']
    assert colour(0) == colour(1) != colour(2)
    assert colour(5) == '#bbbbbb'  # Without a label.
    choice.select_by_visible_text('prediction')
    assert colour(0) != colour(1) == colour(2)
    choice.select_by_visible_text('feature 0')
    assert colour(0) == 'rgb(68,1,84)'
    assert colour(5) == 'rgb(253,231,37)'
    assert find(page, '#legend').text.split() == ['0', '10']


def test_two_graphs_side_by_side(page):
    assert not find(page, '#second').is_displayed()
    find(page, '#compare').click()
    assert find(page, '#second').is_displayed()
    assert find(page, '#second .count').text == '6 nodes, 2 of 2 edges'
    places = page.execute_script(
        """
        return explorer.views.map(
            (view) => view.graph.mapNodes((_, { x, y }) => [x, y]));
        """
    )
    assert places[0] == places[1]
    text = hover(page, 0)
    assert 'layer 1: draws from (2)' in text
    assert '</script><b>layer 2: draws from (2)' in text
    assert len(shown_edges(page, 1)) == 2
    page.execute_script(
        'explorer.views[0].sigma.getCamera().setState({ x: 0.3, ratio: 0.4 })'
    )
    camera = page.execute_script(
        'return explorer.views[1].sigma.getCamera().getState()'
    )
    assert (camera['x'], camera['ratio']) == (0.3, 0.4)
    find(page, '#compare').click()
    assert not find(page, '#second').is_displayed()


def test_narrow_windows_hold_everything(page):
    page.set_window_size(500, 900)
    page.execute_cdp_cmd(
        'Emulation.setDeviceMetricsOverride',
        {'width': 420, 'height': 800, 'deviceScaleFactor': 1, 'mobile': True},
    )
    try:
        widths = page.execute_script(
            'return [document.documentElement.scrollWidth, window.innerWidth]'
        )
        assert widths == [420, 420]
        stage = find(page, '#first .stage').size
        assert stage['width'] >= 400
        assert stage['height'] >= 200
        assert find(page, 'aside').is_displayed()
    finally:
        page.execute_cdp_cmd('Emulation.clearDeviceMetricsOverride', {})


def test_nodes_without_places_are_arranged(browser, tmp_path):
    """Two cliques that nothing joins come apart, from one place."""
    node = torch.arange(5)
    one = torch.cartesian_prod(node, node).t()
    one = one[:, one[0] != one[1]]
    edge_index = torch.cat([one, one + 5], dim=1)
    graph = edge_index, torch.ones(edge_index.size(1))
    path = explore(graph, path=tmp_path / 'cliques.html')
    browser.get_log('browser')
    browser.get(path.as_uri())
    wait(browser, "return document.body.dataset.ready === 'true'")
    assert find(browser, '#arrange').text == 'Stop'
    assert not find(browser, '#compare').is_displayed()
    wait(
        browser,
        """
        const place = [...Array(10).keys()].map((node) =>
            explorer.views[0].graph.getNodeAttributes(String(node)));
        const apart = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);
        let inside = 0, between = Infinity;
        for (let i = 0; i < 10; i += 1) {
            for (let j = 0; j < i; j += 1) {
                const d = apart(place[i], place[j]);
                if ((i < 5) === (j < 5)) inside = Math.max(inside, d);
                else between = Math.min(between, d);
            }
        }
        return between > inside;
        """,
    )
    assert browser.get_log('browser') == []
