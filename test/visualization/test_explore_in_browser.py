"""A click-through of the page that `explore` writes, in Chromium without a window."""

import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_gsl.visualization import explore

webdriver = pytest.importorskip('selenium.webdriver')
ui = pytest.importorskip('selenium.webdriver.support.ui')
wheel = pytest.importorskip('selenium.webdriver.common.actions.wheel_input')
pytestmark = pytest.mark.slow
ActionChains, Keys = webdriver.ActionChains, webdriver.Keys
NAMES = ['zero', 'one', '<img src=x onerror="window.hit=1">', 'three', 'four', 'five']
LAYERS = ['layer 1', '</script><b>layer 2']


@pytest.fixture
def page(visit):
    """A page of two graphs on six nodes, which stand on a grid."""
    edges_1 = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 0, 0, 5]])
    edges_2 = torch.tensor([[5, 4], [0, 0]])
    weights = torch.tensor([0.9, 0.5, 0.3, 0.1, 0.7]), torch.tensor([0.2, 0.8])
    images = torch.zeros(6, 2, 3, 3, dtype=torch.uint8)
    images[1, ..., 0] = 255
    return visit(
        dict(zip(LAYERS, zip((edges_1, edges_2), weights, strict=True), strict=True)),
        data=Data(
            x=torch.arange(12.0).view(6, 2),
            y=torch.tensor([0, 0, 1, 1, 2, -1]),
            pos=torch.tensor([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1.0]]),
        ),
        prediction=torch.tensor([0, 1, 1, 1, 2, 2]),
        images=images,
        names=NAMES,
        class_names=['red', '<i>green', 'blue'],
        title='A <b>title</b> & more',
    )


def js(page, script, *args):
    return page.execute_script(script, *args)


def wait(page, script):
    ui.WebDriverWait(page, 60).until(lambda b: js(b, script))


def find(page, selector):
    return page.find_element('css selector', selector)


def texts(page, selector):
    return [element.text for element in page.find_elements('css selector', selector)]


def point_at(page, node):
    """Move the mouse over a node of the first drawing, and return the action."""
    action = ActionChains(page)
    action.w3c_actions.pointer_action.move_to_location(*place_of(page, node))
    return action


def place_of(page, node):
    """Return where a node stands in the window."""
    # A camera that has moved is drawn in the next frame, and places follow the drawing.
    script = """
        const { sigma } = explorer.views[0];
        sigma.refresh();
        const data = sigma.getNodeDisplayData(arguments[0]);
        const place = sigma.framedGraphToViewport(data);
        const box = sigma.getContainer().getBoundingClientRect();
        return [Math.round(box.left + place.x), Math.round(box.top + place.y)];
        """
    return js(page, script, str(node))


def hover(page, node):
    point_at(page, node).perform()
    wait(page, f'return explorer.focus === {node}')
    return find(page, '#node').text


def shown_edges(page, view=0):
    script = """
        const view = explorer.views[arguments[0]];
        return view.graph.filterEdges(
            (edge) => !view.sigma.getEdgeDisplayData(edge).hidden);
        """
    return set(js(page, script, view))


def colours(page):
    script = """
        const { sigma } = explorer.views[0];
        return [0, 1, 2, 3, 4, 5].map(
            (node) => sigma.getNodeDisplayData(String(node)).color);
        """
    return js(page, script)


def camera(page, view=0):
    return js(page, f'return explorer.views[{view}].sigma.getCamera().getState()')


def set_slider(page, value):
    script = """
        const slider = document.getElementById('threshold');
        slider.value = arguments[0];
        slider.dispatchEvent(new Event('input'));
        """
    js(page, script, value)


def touch(page, action, *points):
    points = [{'x': x, 'y': y} for x, y in points]
    event = {'type': f'touch{action}', 'touchPoints': points}
    page.execute_cdp_cmd('Input.dispatchTouchEvent', event)


def tap(page, x, y):
    touch(page, 'Start', (x, y))
    touch(page, 'End')


def assert_fits(page):
    script = 'return [document.documentElement.scrollWidth, window.innerWidth]'
    width, window = js(page, script)
    assert width <= window
    return window


def test_names_are_text(page):
    assert page.title == find(page, 'h1').text == 'A <b>title</b> & more'
    assert texts(page, '#first .graph option') == LAYERS
    assert '<i>green' in find(page, '#legend').text
    assert NAMES[2] in hover(page, 2)
    assert not page.find_elements('css selector', '#node img, #legend i > i, b b')
    drawn = js(page, 'return explorer.views[0].overlay.drawn[0].text')
    assert drawn == NAMES[2][:27] + '…'


def test_a_node_that_is_pointed_at(page):
    def pixel(x, y):
        script = """
            const image = document.querySelector('#node canvas').getContext('2d');
            return [...image.getImageData(arguments[0], arguments[1], 1, 1).data];
            """
        return js(page, script, x, y)

    assert 'Point at a node' in find(page, '#node').text
    lines = hover(page, 0).splitlines()
    assert lines[0] == 'zero'
    assert 'edges from (2)' in lines
    # The source of the larger weight comes first; a line may hold name and weight.
    listed = ' '.join(lines[lines.index('edges from (2)') + 1 :])
    assert listed.index(NAMES[2]) < listed.index('three')
    assert '0.3' in listed.partition('three')[0]
    assert 'edges to (1)' in lines
    assert len(shown_edges(page)) == 3
    assert pixel(0, 0) == [0, 0, 0, 255]
    hover(page, 1)
    assert pixel(2, 1) == [255, 0, 0, 255]
    # Its image is drawn over the node, too.
    script = """
        const { sigma, overlay } = explorer.views[0];
        const { x, y, half } = overlay.place(1);
        const ratio = window.devicePixelRatio;
        const { data } = overlay.context.getImageData(x * ratio, y * ratio, 1, 1);
        return [getComputedStyle(sigma.getCanvases().hoverNodes).display, [...data]];
        """
    assert js(page, script) == ['none', [255, 0, 0, 255]]


# How a node is chosen, which one it is, and how it is let go.


def click(page):
    point_at(page, 4).click().perform()
    yield 4
    facts = find(page, '#node dl').text.splitlines()
    assert facts[:4] == ['target', 'blue', 'prediction', 'blue']
    find(page, '#fit').click()
    wait(page, 'return explorer.focus === null')
    assert 'Point at a node' in find(page, '#node').text


def tap_beside_it(page):
    x, y = place_of(page, 3)
    tap(page, x + 18, y)
    yield 3
    js(page, 'return new Promise((done) => setTimeout(done, 400))')
    tap(page, x + 100, y + 60)  # Above is the choice of the graph.
    wait(page, 'return explorer.focus === null')


def search(page):
    field = find(page, '#search')
    field.send_keys('f')
    assert texts(page, '#matches button') == ['four', 'five']
    field.send_keys('ive', Keys.ENTER)
    yield 5
    assert not find(page, '#matches').is_displayed()
    field.send_keys('!')
    assert find(page, '#matches').text == 'no such node'
    # The neighbour in the list is a way to that neighbour.
    find(page, '#node li button').click()
    yield 4
    assert camera(page)['ratio'] <= 1


def keys_alone(page):
    js(page, 'document.getElementById("search").focus()')
    ActionChains(page).send_keys('zero', Keys.ENTER).perform()
    yield 0
    js(page, 'document.querySelector("#node li button").focus()')
    ActionChains(page).send_keys(Keys.ENTER).perform()
    yield 2
    heading = js(page, 'return document.activeElement.textContent')
    assert heading == NAMES[2]
    ActionChains(page).send_keys(Keys.ESCAPE).perform()
    wait(page, 'return explorer.focus === null')


@pytest.mark.parametrize('way', [click, tap_beside_it, search, keys_alone])
def test_a_node_is_chosen_and_let_go(page, way):
    for node in way(page):
        wait(page, f'return explorer.chosen === {node}')
        assert find(page, '#node h2').text == NAMES[node]


def test_the_threshold_hides_weak_edges(page):
    least = find(page, '#least')
    assert find(page, '#first .count').text == '6 nodes, 5 of 5 edges'
    assert least.get_attribute('value') == '0.1'
    # In the middle of the slider is the median of all weights.
    set_slider(page, 500)
    assert least.get_attribute('value') == '0.5'
    assert find(page, '#first .count').text == '6 nodes, 3 of 5 edges'
    assert len(shown_edges(page)) == 3
    assert 'edges from (0)' in hover(page, 0)
    ActionChains(page).move_to_element(find(page, 'h1')).perform()
    wait(page, 'return explorer.focus === null')
    for value, num_edges in ((1000, 1), (0, 5)):
        set_slider(page, value)
        assert len(shown_edges(page)) == num_edges
    # A weight can be typed.
    every = Keys.CONTROL + 'a'
    least.send_keys(every)
    least.send_keys('0.6')
    assert len(shown_edges(page)) == 2
    assert find(page, '#threshold').get_attribute('value') == '667'
    least.send_keys(every)
    least.send_keys(Keys.BACKSPACE)
    assert len(shown_edges(page)) == 5


def test_a_page_opens_with_the_heaviest_edges_of_each_node(visit):
    edge_index, weight = graph(400, 20)
    page = visit((edge_index, weight), data=Data(y=torch.arange(20) % 2))
    slider, label = find(page, '#keep'), find(page, '#kept')
    assert label.text == slider.get_attribute('aria-valuetext') == '2'
    # Two of each node, and none of the loops, which would not be seen.
    assert (edge_index[0] == edge_index[1]).any()
    assert len(shown_edges(page)) == 40
    assert find(page, '#first .count').text == '20 nodes, 40 of 400 edges'
    before = find(page, '#homophily').text
    assert before.startswith('Homophily 0.')
    slider.send_keys(Keys.END)
    assert label.text == 'all'
    assert len(shown_edges(page)) == 400
    assert find(page, '#homophily').text != before
    slider.send_keys(Keys.HOME)
    assert label.text == '1'
    # A node that is pointed at shows all of its edges.
    js(page, 'explorer.choose(0)')
    assert len(shown_edges(page)) > 10


def test_light_and_dark(page):
    def background():
        return js(page, 'return getComputedStyle(document.body).backgroundColor')

    assert background() == 'rgb(255, 255, 255)'
    find(page, '#dark').send_keys(Keys.ENTER)
    assert find(page, '#dark').get_attribute('aria-pressed') == 'true'
    assert background() == 'rgb(22, 24, 28)'
    assert colours(page)[5] == '#6b7178'
    find(page, '#dark').click()
    assert background() == 'rgb(255, 255, 255)'
    dark = {'features': [{'name': 'prefers-color-scheme', 'value': 'dark'}]}
    page.execute_cdp_cmd('Emulation.setEmulatedMedia', dark)
    try:
        wait(page, 'return document.documentElement.dataset.theme === "dark"')
    finally:
        page.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': []})


def test_a_class_of_the_legend_is_singled_out(page):
    def coloured():
        faint = js(page, 'return theme.faint')
        return [node for node, colour in enumerate(colours(page)) if colour != faint]

    def entry(i):
        return page.find_elements('css selector', '#legend button')[i]

    assert texts(page, '#legend button') == ['red', '<i>green', 'blue', 'none']
    entry(1).click()
    assert coloured() == [2, 3]
    assert entry(1).get_attribute('aria-pressed') == 'true'
    # Edges with an end in that class.
    script = (
        'const { source, target } = explorer.data.graphs[0]; return [source, target];'
    )
    pairs = enumerate(zip(*js(page, script), strict=True))
    assert shown_edges(page) == {str(e) for e, ends in pairs if {2, 3} & {*ends}}
    entry(3).click()
    assert coloured() == [5]
    assert entry(1).get_attribute('aria-pressed') == 'false'
    entry(3).click()
    assert coloured() == [0, 1, 2, 3, 4, 5]
    assert len(shown_edges(page)) == 5


def test_the_wheel_and_the_keys_zoom(page):
    stage = find(page, '#first .stage')
    origin = wheel.ScrollOrigin.from_element(stage)
    ActionChains(page).scroll_from_origin(origin, 0, -300).perform()
    wait(page, 'return explorer.views[0].sigma.getCamera().ratio < 0.9')
    find(page, '#fit').click()
    wait(page, 'return explorer.views[0].sigma.getCamera().ratio === 1')
    js(page, 'arguments[0].focus()', stage)
    ActionChains(page).send_keys('+', Keys.ARROW_RIGHT).perform()
    assert camera(page)['ratio'] == 0.8
    assert camera(page)['x'] == pytest.approx(0.58)
    ActionChains(page).send_keys('-', Keys.ARROW_LEFT).perform()
    assert camera(page)['ratio'] == 1


def test_colours(page):
    choice = ui.Select(find(page, '#colour'))
    names = [option.text for option in choice.options]
    assert names == ['target', 'prediction', 'feature 0', 'feature 1']
    shown = colours(page)
    assert shown[0] == shown[1] != shown[2]
    assert shown[5] == '#bbbbbb'  # Without a label.
    choice.select_by_visible_text('prediction')
    shown = colours(page)
    assert shown[0] != shown[1] == shown[2]
    choice.select_by_visible_text('feature 0')
    assert colours(page)[::5] == ['rgb(68,1,84)', 'rgb(253,231,37)']
    assert find(page, '#legend').text.split() == ['0', '10']
    choice.select_by_visible_text('target')
    assert 'none' in find(page, '#legend').text.split()


def test_two_graphs_side_by_side(page):
    def move(x, ratio):
        state = f'{{ x: {x}, ratio: {ratio} }}'
        js(page, f'explorer.views[0].sigma.getCamera().setState({state})')

    second = find(page, '#second')
    assert not second.is_displayed()
    find(page, '#compare').click()
    assert second.is_displayed()
    assert find(page, '#second .count').text == '6 nodes, 2 of 2 edges'
    places = 'view.graph.mapNodes((_, { x, y }) => [x, y])'
    left, right = js(page, f'return explorer.views.map((view) => {places})')
    assert left == right
    text = hover(page, 0)
    assert 'layer 1: edges from (2)' in text
    assert '</script><b>layer 2: edges from (2)' in text
    assert len(shown_edges(page, 1)) == 2
    move(0.3, 0.4)
    assert (camera(page, 1)['x'], camera(page, 1)['ratio']) == (0.3, 0.4)
    find(page, '#compare').click()
    assert not second.is_displayed()
    move(0.5, 1)
    assert 'layer 1' not in hover(page, 1)


def test_narrow_windows_hold_everything(page):
    page.set_window_size(500, 900)
    phone = {'width': 420, 'height': 800, 'deviceScaleFactor': 1, 'mobile': True}
    page.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', phone)
    try:
        assert assert_fits(page) == 420
        stage = find(page, '#first .stage').size
        assert stage['width'] >= 400
        assert stage['height'] >= 200
        assert find(page, 'aside').is_displayed()
    finally:
        page.execute_cdp_cmd('Emulation.clearDeviceMetricsOverride', {})


def test_nodes_without_places_are_arranged(visit):
    """Two cliques that nothing joins come apart, from one place."""
    node = torch.arange(5)
    clique = torch.cartesian_prod(node, node).t()
    clique = clique[:, clique[0] != clique[1]]
    edge_index = torch.cat([clique, clique + 5], dim=1)
    page = visit((edge_index, torch.ones(edge_index.size(1))))
    assert find(page, '#arrange').text == 'Stop'
    assert not find(page, '#compare').is_displayed()
    script = """
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
        """
    wait(page, script)


def graph(num_edges, num_nodes, weight=None):
    edges = torch.randint(num_nodes, (2, num_edges))
    return edges, torch.rand(num_edges) if weight is None else weight


NOT_FINITE = Data(x=torch.full((3, 2), torch.nan), y=torch.full((3,), torch.nan))
ODD = {
    'one node': (graph(0, 1), {'data': Data(x=torch.ones(1, 2))}),
    'a loop': ((torch.tensor([[0], [0]]), torch.ones(1)), {}),
    'no edges': (graph(0, 1), {'names': ['a', 'b', 'c']}),
    'no weight': (graph(9, 5, torch.zeros(9)), {}),
    'equal weights': (graph(9, 5, torch.full((9,), 0.2)), {}),
    'weights over decades': (graph(9, 5, 10.0 ** torch.arange(-12, -3)), {}),
    'long names': (graph(9, 3), {'names': ['n' * 5000] * 3}),
    'nothing is finite': (graph(9, 3), {'data': NOT_FINITE}),
    'many classes': (
        graph(90, 60),
        {'data': Data(y=torch.arange(60), x=torch.randn(60, 3))},
    ),
    'one place': (graph(9, 3), {'data': Data(pos=torch.zeros(3, 2))}),
}


@pytest.mark.parametrize(('edges', 'kwargs'), ODD.values(), ids=ODD)
def test_odd_graphs(visit, edges, kwargs):
    page = visit(edges, **kwargs)
    js(page, 'explorer.keep(Infinity)')
    assert len(shown_edges(page)) == edges[1].numel()
    is_enabled = find(page, '#threshold').is_enabled()
    assert is_enabled == (len(edges[1].unique()) > 1)
    if is_enabled:
        set_slider(page, 1000)
        assert len(shown_edges(page)) == 1
    js(page, 'explorer.choose(0); explorer.views[0].goTo(0)')
    assert find(page, '#node h2').is_displayed()
    assert_fits(page)


def test_a_graph_of_too_many_edges_says_so(visit):
    page = visit(graph(200_000, 5000), data=Data(pos=torch.randn(5000, 2)))
    shown, text = find(page, '#first .count').text.split(' of ', 1)
    assert text == '50,000 edges, the strongest of 200,000'
    # Of these the two heaviest into each node, or its only one.
    assert 9_000 < int(shown.split()[-1].replace(',', '')) <= 10_000
    find(page, '#search').send_keys('4321')
    js(page, 'document.querySelector("#matches button").click()')
    assert find(page, '#node h2').text == '4321'


def test_without_webgl_the_page_says_what_it_needs(browser, tmp_path):
    script = {'source': 'HTMLCanvasElement.prototype.getContext = () => null;'}
    added = browser.execute_cdp_cmd('Page.addScriptToEvaluateOnNewDocument', script)
    try:
        browser.get(explore(graph(1, 2), path=tmp_path / 'graph.html').as_uri())
        wait(browser, 'return !document.getElementById("failure").hidden')
        assert 'It needs WebGL' in find(browser, '#failure').text
    finally:
        browser.execute_cdp_cmd('Page.removeScriptToEvaluateOnNewDocument', added)
